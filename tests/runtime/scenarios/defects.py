"""Defects that were found in another agent runtime, and the tests that keep each of them out of this one."""

from __future__ import annotations

import msgspec


class Defect(msgspec.Struct, frozen=True):
    """A defect: its number, what was wrong, and the tests that would fail if it came back."""

    number: int
    title: str
    tests: tuple[str, ...]


_OWN = "tests/runtime/scenarios/test_defects.py"
_TOOLS = "tests/runtime/scenarios/test_every_tool.py"
_HIDDEN = "tests/runtime/scenarios/test_hidden_inputs.py"
_CALLS = "tests/runtime/calls"
_MEMORY = "tests/runtime/memory"
_NAVIGATION = "tests/runtime/navigation"
_OUTCOMES = "tests/runtime/outcomes/test_known_defects.py"
_RECALL = "tests/runtime/recall"
_RESOURCES = "tests/runtime/resources"
_SANDBOX = "tests/sandbox"
_SHELL = "tests/runtime/shell"
_WAKES = "tests/runtime/wakes"
_HARNESS = "tests/runtime/harness"

DEFECTS = (
    Defect(
        1,
        "sandbox_execute runs commands without a confirmation",
        (f"{_CALLS}/test_flow.py::test_an_action_asks_exactly_as_its_tool_does_and_shares_its_approval",),
    ),
    Defect(
        2,
        "commands are not isolated from the host",
        (
            f"{_SANDBOX}/isolation/test_escapes.py::test_no_attempt_gets_out_of_a_sandbox",
            f"{_RESOURCES}/test_whole_path.py::test_a_vault_is_empty_inside_and_others_do_not_exist",
        ),
    ),
    Defect(
        3,
        "wc --files0-from reads any file of the host",
        (f"{_SANDBOX}/commands/test_allow_list.py::test_an_unknown_command_or_option_is_refused_by_name",),
    ),
    Defect(
        4,
        "symbolic links lead out of the mounts",
        (
            f"{_SANDBOX}/files/test_beneath.py::test_a_link_that_leads_out_finds_nothing_and_writes_nothing",
            f"{_SANDBOX}/isolation/test_mounts.py::test_no_file_action_follows_a_link_that_is_exchanged_under_it",
        ),
    ),
    Defect(
        5,
        "approval is not one-shot",
        (
            f"{_CALLS}/test_approvals.py::test_a_call_that_asks_runs_after_the_yes_and_only_once",
            f"{_CALLS}/test_approvals.py::test_other_arguments_are_another_request",
        ),
    ),
    Defect(
        6,
        "the agent writes the files that the runtime believes",
        (
            f"{_OWN}::test_defect_6_the_agent_cannot_write_the_files_about_its_session",
            "tests/runtime/artifacts/test_files.py::test_a_file_that_was_changed_by_hand_is_written_again_and_never_believed",
        ),
    ),
    Defect(
        7,
        "promoteToMemory writes into every prompt without a gate",
        (f"{_MEMORY}/test_promotions.py::test_a_model_alone_cannot_write_into_the_prompts_of_other_sessions",),
    ),
    Defect(
        8,
        "the verdict fulfils itself, the gate cannot pass, and the caller switches it off",
        (
            f"{_OUTCOMES}::test_self_fulfilling_verdict_an_agent_that_did_nothing_does_not_pass_by_its_own_words",
            f"{_OUTCOMES}::test_gate_cannot_pass_the_default_gate_opens_for_a_passed_outcome_inside_a_gated_call",
            f"{_OUTCOMES}::test_caller_switches_the_gate_off_the_argument_false_is_refused",
        ),
    ),
    Defect(
        9,
        "a session writes into other sessions",
        (
            f"{_MEMORY}/test_session_memory.py::test_another_session_cannot_be_written",
            f"{_OUTCOMES}::test_cross_session_write_an_outcome_of_another_session_cannot_be_defined",
        ),
    ),
    Defect(
        10,
        "every vault is mounted in every session",
        (f"{_RESOURCES}/test_vaults.py::test_a_session_sees_only_the_vaults_it_is_attached_to",),
    ),
    Defect(
        11,
        "one vendor's backend ignores tools, sandbox and permissions",
        (f"{_OWN}::test_defect_11_every_vendor_gets_the_tools_and_every_call_passes_the_gate",),
    ),
    Defect(
        12,
        "LD_PRELOAD can be set, and values of variables are written down",
        (
            f"{_SHELL}/test_variables.py::test_a_variable_that_decides_how_programs_run_is_refused",
            f"{_SHELL}/test_variables.py::test_a_value_is_nowhere_but_in_its_encrypted_document",
            f"{_HIDDEN}::test_a_secret_value_of_a_call_is_in_no_event_and_in_no_later_request",
        ),
    ),
    Defect(
        13,
        "without a sandbox the shell tools stay active",
        (
            f"{_SHELL}/test_commands.py::test_a_level_without_commands_refuses_them_before_anybody_is_asked",
            f"{_CALLS}/test_hostile_callers.py::test_an_action_whose_tool_the_caller_does_not_have_is_refused",
        ),
    ),
    Defect(
        14,
        "the sandbox of a parent points to the workspace of its child",
        (f"{_OWN}::test_defect_14_a_parent_keeps_its_own_workspace_after_its_child_has_run",),
    ),
    Defect(
        15,
        "memory_write is lost at the end of the wake",
        (f"{_MEMORY}/test_session_memory.py::test_what_was_written_is_there_after_the_wake",),
    ),
    Defect(
        16,
        "the first shell_exec breaks all later shell and bash calls",
        (f"{_OWN}::test_defect_16_the_first_shell_exec_breaks_no_later_call",),
    ),
    Defect(
        17,
        "more than 12,000 characters of output kill the shell",
        (f"{_SHELL}/test_whole_path.py::test_a_megabyte_of_output_neither_blocks_nor_ends_the_shell",),
    ),
    Defect(
        18,
        "bash refuses options with a value of their own",
        (
            f"{_OWN}::test_defect_18_bash_takes_options_with_a_value",
            f"{_SANDBOX}/commands/test_allow_list.py::test_a_known_command_with_known_options_is_allowed_by_its_absolute_path",
        ),
    ),
    Defect(
        19,
        "grep fails on a file, edit interprets $, and projections differ from their commands",
        (
            f"{_OWN}::test_defect_19_grep_takes_a_file_and_edit_takes_text_literally",
            f"{_SANDBOX}/files/test_writing.py::test_an_edit_is_literal_and_leaves_all_other_bytes",
            f"{_SANDBOX}/commands/test_equality.py::test_a_projected_command_gives_what_the_command_gives",
            f"{_SANDBOX}/commands/test_parsing.py::test_what_may_mean_more_than_its_words_is_not_parsed",
        ),
    ),
    Defect(
        20,
        "the default budget drops all history and all notes",
        (f"{_OWN}::test_defect_20_by_default_the_history_and_the_notes_reach_the_model",),
    ),
    Defect(
        21,
        "fingerprints never match, trends compare with themselves, evidence counts twice, lineage is ignored",
        (
            "tests/runtime/setup/test_setup.py::test_two_sessions_of_an_agent_with_the_same_setup_have_equal_fingerprints",
            f"{_OUTCOMES}::test_trend_self_compares_an_observer_after_one_wake_sees_the_first_iteration",
            f"{_RECALL}/test_scoring.py::test_the_same_source_twice_is_one_evidence",
            f"{_RECALL}/test_search.py::test_a_lineage_limits_every_backend",
        ),
    ),
    Defect(
        22,
        "suggested calls are not valid, and paths of files lead nowhere",
        (
            f"{_TOOLS}::test_every_suggested_call_is_valid_for_its_own_tool",
            f"{_TOOLS}::test_every_file_that_a_result_names_can_be_read",
        ),
    ),
    Defect(
        23,
        "events are read in another order, and text before a custom tool is lost",
        (
            f"{_NAVIGATION}/test_reading.py::test_before_after_and_around_give_events_in_log_order",
            f"{_WAKES}/test_approvals.py::test_a_custom_tool_pauses_until_its_result_arrives",
        ),
    ),
    Defect(
        24,
        "the configured model is not used, and another one is recorded",
        (f"{_OWN}::test_defect_24_the_configured_model_is_asked_and_recorded",),
    ),
    Defect(
        25,
        "a permanent failure loops hot",
        (
            f"{_WAKES}/test_failures.py::test_a_permanent_error_stops_at_once",
            f"{_WAKES}/test_failures.py::test_failures_that_do_not_end_exhaust_the_retries",
        ),
    ),
    Defect(
        26,
        "queued wakes are lost, and only one of several is shown",
        (
            f"{_OWN}::test_defect_26_a_queued_wake_is_not_lost_in_a_crash",
            f"{_HARNESS}/test_turns.py::test_a_queued_wake_that_meets_a_failing_model_is_tried_again_soon",
            f"{_WAKES}/test_limits.py::test_all_due_wakes_are_shown_to_the_model",
        ),
    ),
    Defect(
        27,
        "a crash leaves a lease, a running session, a lock and processes",
        (
            f"{_WAKES}/test_failures.py::test_a_wake_that_died_is_finished_without_repeating_a_finished_call",
            "tests/runtime/test_kill_loop.py::test_kills_at_random_moments_lose_nothing_repeat_nothing_and_leave_nothing",
            f"{_SANDBOX}/host/test_real_sandboxes.py::test_a_killed_host_leaves_no_sandbox_and_no_process_of_one",
        ),
    ),
    Defect(
        28,
        "a worker that lost its lease still commits",
        (f"{_WAKES}/test_failures.py::test_a_worker_that_lost_its_lease_cannot_commit",),
    ),
    Defect(
        29,
        "a torn write swallows events and makes the log unreadable",
        (
            "tests/ledger/sqlite/test_power_cut.py::test_acknowledged_events_survive_a_power_cut_at_every_sync",
            "tests/ledger/test_killed_writers.py::test_a_killed_process_loses_nothing_that_was_acknowledged",
        ),
    ),
    Defect(
        30,
        "an interrupt stops nothing, and there are neither streams nor budgets",
        (
            f"{_WAKES}/test_wakes.py::test_an_interrupt_stops_the_model_and_goes_on_with_what_the_person_says",
            f"{_HARNESS}/test_interrupts.py::test_an_interrupt_stops_a_command_in_its_sandbox_also_the_first_one",
            "tests/surfaces/runtime/test_live.py::test_text_is_shown_as_it_arrives_and_not_again_with_its_message",
            f"{_WAKES}/test_limits.py::test_a_used_up_budget_stops_before_the_next_request",
        ),
    ),
    Defect(
        31,
        "one timer for a whole wake repeats its effects",
        (
            f"{_SHELL}/test_commands.py::test_a_long_command_returns_running_and_is_waited_for",
            "tests/providers/test_faults.py::test_slow_tokens_are_no_silence",
            f"{_WAKES}/test_approvals.py::test_a_call_whose_end_is_unknown_is_repeated_only_by_a_person",
        ),
    ),
    Defect(
        32,
        "every wake reads everything, and nothing has pages",
        (
            f"{_RECALL}/test_search.py::test_the_work_of_a_search_does_not_grow_with_the_number_of_sessions",
            f"{_NAVIGATION}/test_listing.py::test_a_list_considers_a_bounded_number_of_sessions",
            f"{_NAVIGATION}/test_reading.py::test_the_suggested_calls_lead_through_the_whole_log",
        ),
    ),
    Defect(
        33,
        "retrieval and grading count substrings",
        (
            f"{_RECALL}/test_search.py::test_a_word_is_not_found_inside_of_a_longer_word",
            f"{_OUTCOMES}::test_self_fulfilling_verdict_an_agent_that_did_nothing_does_not_pass_by_its_own_words",
        ),
    ),
    Defect(
        34,
        "logs that contain readings of logs grow geometrically",
        (f"{_NAVIGATION}/test_reading.py::test_reading_logs_again_and_again_does_not_make_results_grow",),
    ),
    Defect(
        35,
        "arguments are not validated, and there are no MCP servers, custom tools, versions, ends or authentication",
        (
            f"{_CALLS}/test_flow.py::test_wrong_arguments_are_refused_by_name_and_recorded",
            "tests/runtime/servers/test_servers.py::test_the_model_calls_a_tool_of_a_server_of_the_user",
            f"{_WAKES}/test_approvals.py::test_a_custom_tool_pauses_until_its_result_arrives",
            "tests/runtime/agents/test_versions.py::test_each_different_content_is_a_version_and_stays_readable",
            "tests/surfaces/runtime/test_commands.py::test_sessions_are_listed_archived_and_ended",
            "tests/surfaces/test_http_token.py::test_up_serves_nobody_without_the_token_of_its_home",
        ),
    ),
    Defect(
        36,
        "every model call declares all tools",
        (
            f"{_OWN}::test_defect_36_the_first_request_of_an_empty_agent_is_small",
            f"{_WAKES}/test_wakes.py::test_an_undeclared_tool_is_opened_and_called_by_name",
        ),
    ),
)
