-- What pages and the API ask of usage, without reading a row per key and model: `usage_models` leaves out the keys and
-- `usage_keys` the models. Both change in the transactions that change `usage_hours`.

-- `span` is the length of what is summed up: `hour` for as long as the rows of `usage_hours` are kept, `day` for ever.
CREATE TABLE usage_models (
    workspace_id       TEXT NOT NULL,
    span               TEXT NOT NULL,
    at                 BIGINT NOT NULL,
    model              TEXT NOT NULL,
    requests           BIGINT NOT NULL,
    prompt_tokens      BIGINT NOT NULL,
    completion_tokens  BIGINT NOT NULL,
    cost_nanos         BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, span, at, model)
) {CLUSTERED};

-- `day` and `week` for as long as the rows of `usage_hours` are kept, `month` for ever.
CREATE TABLE usage_keys (
    workspace_id       TEXT NOT NULL,
    span               TEXT NOT NULL,
    at                 BIGINT NOT NULL,
    key_id             TEXT NOT NULL,
    requests           BIGINT NOT NULL,
    prompt_tokens      BIGINT NOT NULL,
    completion_tokens  BIGINT NOT NULL,
    cost_nanos         BIGINT NOT NULL,
    PRIMARY KEY (workspace_id, span, at, key_id)
) {CLUSTERED};

-- Costs are summed up as whole units and billionths, neither of which can overflow.
INSERT INTO usage_models (workspace_id, span, at, model, requests, prompt_tokens, completion_tokens, cost_nanos)
SELECT workspace_id, span, at, model, requests, prompt_tokens, completion_tokens,
       CASE WHEN units + nanos / 1000000000 >= 9223372036 THEN 9223372036854775807 ELSE units * 1000000000 + nanos END
FROM (
    SELECT workspace_id, span, at, model, CAST(SUM(requests) AS BIGINT) AS requests,
           CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
           CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
           CAST(SUM(cost_nanos / 1000000000) AS BIGINT) AS units, CAST(SUM(cost_nanos % 1000000000) AS BIGINT) AS nanos
    FROM (
        SELECT workspace_id, 'hour' AS span, at, model, requests, prompt_tokens, completion_tokens, cost_nanos
        FROM usage_hours
        UNION ALL
        SELECT workspace_id, 'day' AS span, at - at % 86400000 AS at, model, requests, prompt_tokens, completion_tokens, cost_nanos
        FROM usage_hours
        UNION ALL
        SELECT workspace_id, 'day' AS span, at, model, requests, prompt_tokens, completion_tokens, cost_nanos
        FROM usage_days
    ) AS usage
    GROUP BY workspace_id, span, at, model
) AS sums;

-- Weeks begin on Monday; 1970-01-05 was one.
INSERT INTO usage_keys (workspace_id, span, at, key_id, requests, prompt_tokens, completion_tokens, cost_nanos)
SELECT workspace_id, span, at, key_id, requests, prompt_tokens, completion_tokens,
       CASE WHEN units + nanos / 1000000000 >= 9223372036 THEN 9223372036854775807 ELSE units * 1000000000 + nanos END
FROM (
    SELECT workspace_id, span, at, key_id, CAST(SUM(requests) AS BIGINT) AS requests,
           CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
           CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
           CAST(SUM(cost_nanos / 1000000000) AS BIGINT) AS units, CAST(SUM(cost_nanos % 1000000000) AS BIGINT) AS nanos
    FROM (
        SELECT workspace_id, 'day' AS span, at - at % 86400000 AS at, key_id, requests, prompt_tokens, completion_tokens, cost_nanos
        FROM usage_hours
        UNION ALL
        SELECT workspace_id, 'week' AS span, at - (at - 345600000) % 604800000 AS at, key_id, requests, prompt_tokens, completion_tokens, cost_nanos
        FROM usage_hours
        UNION ALL
        SELECT workspace_id, 'month' AS span, {MONTH_OF_AT} AS at, key_id, requests, prompt_tokens, completion_tokens, cost_nanos
        FROM usage_hours
        UNION ALL
        SELECT workspace_id, 'month' AS span, {MONTH_OF_AT} AS at, key_id, requests, prompt_tokens, completion_tokens, cost_nanos
        FROM usage_days
    ) AS usage
    GROUP BY workspace_id, span, at, key_id
) AS sums;

-- What one key used.
CREATE INDEX usage_hours_by_key ON usage_hours (key_id, at);
CREATE INDEX usage_days_by_key ON usage_days (key_id, at);

-- Lists of the panel: a search among an owner's projects reads names from the index, and each filter of the audit log
-- finds the ids of its entries in an index alone.
CREATE INDEX projects_by_owner_and_name ON projects (owner_id, id, name);
CREATE INDEX team_members_by_time ON team_members (team_id, joined_at, account_id);
CREATE INDEX audit_by_account ON audit (owner_id, account_id, id);
CREATE INDEX audit_by_action ON audit (owner_id, action, id, account_id);
CREATE INDEX audit_by_kind_and_account ON audit (owner_id, kind, id, account_id);
CREATE INDEX audit_by_subject_and_account ON audit (owner_id, subject, id, account_id, kind, action);

-- The steps of a project lie together: a page with fifty sparklines reads two thousand of them.
CREATE TABLE project_traffic_steps (
    project_id  TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    step        BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    requests    BIGINT NOT NULL,
    errors      BIGINT NOT NULL,
    bytes       BIGINT NOT NULL,
    samples     BIGINT NOT NULL,
    cpu_millis  BIGINT NOT NULL,
    memory_kib  BIGINT NOT NULL,
    t0          BIGINT NOT NULL,
    t1          BIGINT NOT NULL,
    t2          BIGINT NOT NULL,
    t3          BIGINT NOT NULL,
    t4          BIGINT NOT NULL,
    t5          BIGINT NOT NULL,
    t6          BIGINT NOT NULL,
    t7          BIGINT NOT NULL,
    t8          BIGINT NOT NULL,
    t9          BIGINT NOT NULL,
    PRIMARY KEY (project_id, step, at)
) {CLUSTERED};
INSERT INTO project_traffic_steps SELECT * FROM project_traffic;
CREATE INDEX project_traffic_by_step ON project_traffic_steps (step, at);

-- Last, because PostgreSQL lets nobody read `projects` and `audit` from here to the end of the transaction.
DROP INDEX projects_by_owner;
DROP INDEX audit_by_kind;
DROP INDEX audit_by_subject;
DROP TABLE project_traffic;
ALTER TABLE project_traffic_steps RENAME TO project_traffic;
