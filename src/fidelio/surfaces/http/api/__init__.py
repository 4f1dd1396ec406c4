"""The JSON API for people's own scripts, `/api`: a table of operations, which the dispatch and the OpenAPI document share."""
