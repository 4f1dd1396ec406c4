"""Tools over streamable HTTP, through the official SDK. Imported only by who serves HTTP, because the SDK starts slowly."""
