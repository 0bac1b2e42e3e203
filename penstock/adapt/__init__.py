"""Adaptation of running queries: monitor, decisions, run-time commands, and the allocation of probe budgets."""

from penstock.adapt.allocate import HEURISTICS, POLICIES, Allocation, allocate
from penstock.adapt.budget import Budget, BudgetScope, Timer, as_budget
from penstock.adapt.commands import (
    ACTIONS,
    Action,
    AdaptCommand,
    AddQuery,
    AdvanceStream,
    AlterQuery,
    Begin,
    Command,
    CommandedEngine,
    DeriveStream,
    DropQuery,
    EndStreams,
    EngineCommand,
    EngineOrder,
    Migrate,
    QueryCommand,
    SetBudget,
    SetPolicy,
    SetSchedule,
    ShedLoad,
    TimeCommand,
    decode_command,
    decode_order,
    encode_command,
)
from penstock.adapt.controller import LOG_SIZE, Controller, DecisionReplay
from penstock.adapt.decide import Decision, Rules, as_rules
from penstock.adapt.decision_thread import DecisionThread, make_analysis
from penstock.adapt.freshness import RefreshRates, compute_refresh_rates, find_greedy_cover, limit_to_supply
from penstock.adapt.join_budget import JoinBudget
from penstock.adapt.monitor import JoinSample, PushStats, compare_codes
from penstock.adapt.sample_codec import decode_samples, encode_samples
from penstock.adapt.sample_merger import SampleMerger
from penstock.adapt.sampler import Sampler
from penstock.adapt.steady import allocate_steady, compute_completeness

__all__ = [
    "ACTIONS",
    "HEURISTICS",
    "LOG_SIZE",
    "POLICIES",
    "Action",
    "AdaptCommand",
    "AddQuery",
    "AdvanceStream",
    "Allocation",
    "AlterQuery",
    "Begin",
    "Budget",
    "BudgetScope",
    "Command",
    "CommandedEngine",
    "Controller",
    "Decision",
    "DecisionReplay",
    "DecisionThread",
    "DeriveStream",
    "DropQuery",
    "EndStreams",
    "EngineCommand",
    "EngineOrder",
    "JoinBudget",
    "JoinSample",
    "Migrate",
    "PushStats",
    "QueryCommand",
    "RefreshRates",
    "Rules",
    "SampleMerger",
    "Sampler",
    "SetBudget",
    "SetPolicy",
    "SetSchedule",
    "ShedLoad",
    "TimeCommand",
    "Timer",
    "allocate",
    "allocate_steady",
    "as_budget",
    "as_rules",
    "compare_codes",
    "compute_completeness",
    "compute_refresh_rates",
    "decode_command",
    "decode_order",
    "decode_samples",
    "encode_command",
    "encode_samples",
    "find_greedy_cover",
    "limit_to_supply",
    "make_analysis",
]
