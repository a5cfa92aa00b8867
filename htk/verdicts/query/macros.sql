-- Intervals in SQL. Each takes the name of a table, view or WITH-query that has the columns
-- rank, start_ns and end_ns, and device where its rows are of GPUs, and answers with such columns,
-- one device of a rank after the other; intervals are half-open, those without length count for
-- nothing. Rows without a device, such as those of the host, are held against each device.

-- The intervals of `source`, with a device, or null where it has no such column.
CREATE MACRO placed_spans(source) AS TABLE
SELECT placed.* FROM (SELECT NULL::INTEGER AS device) AS nowhere, LATERAL (
    SELECT rank, device, start_ns, end_ns FROM query_table(source) WHERE end_ns > start_ns
) AS placed;

-- Where at least one interval of `source` is: union_spans('kernels').
CREATE MACRO union_spans(source) AS TABLE
WITH marked AS (
    SELECT rank, device, start_ns, end_ns,
           max(end_ns) OVER (PARTITION BY rank, device ORDER BY start_ns, end_ns
                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM placed_spans(source)
), islands AS (
    SELECT rank, device, start_ns, end_ns,
           sum(CASE WHEN reached >= start_ns THEN 0 ELSE 1 END)
               OVER (PARTITION BY rank, device ORDER BY start_ns, end_ns
                     ROWS UNBOUNDED PRECEDING) AS island
    FROM marked
)
SELECT rank, device, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM islands GROUP BY rank, device, island ORDER BY rank, device, start_ns;

-- How many intervals of `first` and of `second` are open, from each time to the next.
CREATE MACRO open_spans(first, second) AS TABLE
WITH spans AS (
    SELECT *, 1 AS a, 0 AS b FROM placed_spans(first)
    UNION ALL
    SELECT *, 0, 1 FROM placed_spans(second)
), devices AS (
    SELECT DISTINCT rank, device FROM spans WHERE device IS NOT NULL
    UNION ALL
    SELECT rank, NULL FROM spans GROUP BY rank HAVING count(device) = 0
), held AS (
    SELECT devices.rank, devices.device, start_ns, end_ns, a, b
    FROM spans JOIN devices ON spans.rank IS NOT DISTINCT FROM devices.rank
        AND (spans.device IS NULL OR spans.device = devices.device)
), changes AS (
    SELECT rank, device, start_ns AS moment, a, b FROM held
    UNION ALL
    SELECT rank, device, end_ns, -a, -b FROM held
), moments AS (
    SELECT rank, device, moment, sum(a) AS a, sum(b) AS b FROM changes
    GROUP BY rank, device, moment
)
SELECT rank, device, moment AS start_ns,
       lead(moment) OVER (PARTITION BY rank, device ORDER BY moment) AS end_ns,
       sum(a) OVER (PARTITION BY rank, device ORDER BY moment ROWS UNBOUNDED PRECEDING) AS in_first,
       sum(b) OVER (PARTITION BY rank, device ORDER BY moment ROWS UNBOUNDED PRECEDING) AS in_second
FROM moments;

-- Where an interval of each is: overlap_spans('comm', 'compute').
CREATE MACRO overlap_spans(first, second) AS TABLE
SELECT rank, device, start_ns, end_ns FROM open_spans(first, second)
WHERE in_first > 0 AND in_second > 0 ORDER BY rank, device, start_ns;

-- Where one of `first` and none of `second` is: exposed_spans('comm', 'compute').
CREATE MACRO exposed_spans(first, second) AS TABLE
SELECT rank, device, start_ns, end_ns FROM open_spans(first, second)
WHERE in_first > 0 AND in_second = 0 ORDER BY rank, device, start_ns;

-- Nanoseconds of a source's union for each device of each rank: busy('kernels').
CREATE MACRO busy(source) AS TABLE
SELECT rank, device, sum(end_ns - start_ns)::BIGINT AS busy_ns
FROM union_spans(source) GROUP BY rank, device ORDER BY rank, device;
