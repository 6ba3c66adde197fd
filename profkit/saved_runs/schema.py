"""The tables of a history database, as the migrations that make them."""

from __future__ import annotations

from typing import Final

__all__ = ["APPLICATION_ID", "MIGRATIONS", "VERSION"]

APPLICATION_ID: Final = 0x70726F66
"""SQLite's ``application_id`` of a history database: "prof"."""

_TABLES: Final = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    saved_at TEXT NOT NULL,
    inputs TEXT NOT NULL, format TEXT, tool TEXT, tool_version TEXT,
    gpu TEXT, devices INTEGER NOT NULL, steps INTEGER NOT NULL,
    verdict TEXT NOT NULL, share REAL, sentence TEXT NOT NULL,
    step_ns INTEGER, busy_ns INTEGER, idle_ns INTEGER, kernel_count REAL,
    peak_allocated_bytes INTEGER, peak_reserved_bytes INTEGER,
    git_revision TEXT, git_dirty INTEGER
);
CREATE TABLE reports (run INTEGER PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE, document BLOB NOT NULL);
CREATE TABLE tags (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (run, key)
);
CREATE INDEX tags_by_value ON tags (key, value, run);
CREATE TABLE environment (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (run, key)
);
CREATE TABLE steps (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, number INTEGER NOT NULL, name TEXT NOT NULL,
    kept INTEGER NOT NULL, wall_ns INTEGER, device_ns INTEGER, busy_ns INTEGER,
    PRIMARY KEY (run, number)
);
CREATE TABLE shares (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, share TEXT NOT NULL, ns INTEGER NOT NULL,
    PRIMARY KEY (run, share)
);
CREATE TABLE idle (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, cause TEXT NOT NULL, ns INTEGER NOT NULL,
    PRIMARY KEY (run, cause)
);
CREATE INDEX idle_by_cause ON idle (cause, run, ns);
CREATE TABLE phases (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, path TEXT NOT NULL, count REAL NOT NULL,
    gpu_ns INTEGER, gpu_exclusive_ns INTEGER, host_ns INTEGER, kernel_count REAL, peak_allocated_bytes INTEGER,
    PRIMARY KEY (run, path)
);
CREATE INDEX phases_by_path ON phases (path, run);
CREATE TABLE kernel_names (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, short_name TEXT NOT NULL, family TEXT NOT NULL
);
CREATE INDEX kernel_names_by_family ON kernel_names (family);
CREATE INDEX kernel_names_by_short_name ON kernel_names (short_name);
CREATE TABLE kernels (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    kernel INTEGER NOT NULL REFERENCES kernel_names(id),
    grid TEXT, block TEXT, count REAL NOT NULL, ns INTEGER NOT NULL, mean_ns REAL NOT NULL,
    bound TEXT NOT NULL, basis TEXT NOT NULL, efficiency REAL
);
CREATE INDEX kernels_by_run ON kernels (run);
CREATE INDEX kernels_by_kernel ON kernels (kernel, run, ns, count);
CREATE TABLE memory (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    category TEXT, place TEXT, bytes INTEGER NOT NULL, count INTEGER NOT NULL
);
CREATE INDEX memory_by_run ON memory (run);
CREATE TABLE syncs (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    api TEXT NOT NULL, operator TEXT, place TEXT, phase TEXT,
    count REAL NOT NULL, blocked_ns INTEGER NOT NULL, cost_ns INTEGER
);
CREATE INDEX syncs_by_run ON syncs (run);
CREATE TABLE communication (
    run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    collective TEXT NOT NULL, dtype TEXT, count REAL NOT NULL, bytes INTEGER, ns INTEGER NOT NULL, exposed_ns INTEGER
);
CREATE INDEX communication_by_run ON communication (run);
"""

_BASELINES_AND_VIEWS: Final = """
CREATE TABLE baselines (
    name TEXT PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE, set_at TEXT NOT NULL
);
CREATE INDEX runs_by_time ON runs (saved_at);
CREATE VIEW run_list AS
    SELECT runs.id, saved_at, round(step_ns / 1e6, 4) AS step_ms, round(busy_ns / 1e6, 4) AS busy_ms,
           round(idle_ns / 1e6, 4) AS idle_ms, verdict, gpu, format, steps, kernel_count, peak_allocated_bytes,
           git_revision, inputs,
           (SELECT group_concat(key || '=' || value, ' ') FROM tags WHERE tags.run = runs.id) AS tags,
           (SELECT group_concat(name, ' ') FROM baselines WHERE baselines.run = runs.id) AS baselines
    FROM runs;
CREATE VIEW kernel_list AS
    SELECT kernels.run, name, short_name, family, grid, block, count, ns, mean_ns, bound, basis, efficiency
    FROM kernels JOIN kernel_names ON kernel_names.id = kernels.kernel;
CREATE VIEW family_list AS
    SELECT kernels.run, family, sum(count) AS count, sum(ns) AS ns
    FROM kernels JOIN kernel_names ON kernel_names.id = kernels.kernel GROUP BY kernels.run, family;
"""

_TRIALS: Final = """
CREATE TABLE trials (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    saved_at TEXT NOT NULL, command TEXT NOT NULL, step_ms REAL NOT NULL,
    changes TEXT NOT NULL, beside TEXT NOT NULL,
    predicted_low REAL, predicted REAL, predicted_high REAL,
    measured_low REAL NOT NULL, measured REAL NOT NULL, measured_high REAL NOT NULL,
    kept INTEGER NOT NULL, why TEXT NOT NULL
);
CREATE INDEX trials_by_changes ON trials (changes);
"""

MIGRATIONS: Final = (_TABLES, _BASELINES_AND_VIEWS, _TRIALS)
"""What makes each version from the one before; the first makes version 1. Only ever add to these."""

VERSION: Final = len(MIGRATIONS)
"""The version that this profkit writes and reads."""
