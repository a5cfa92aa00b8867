-- Intervals in SQL. Each takes the name of a table, view or WITH-query that has the columns
-- rank, start_ns and end_ns, and answers with such columns, one rank after the other; intervals
-- are half-open, those without length count for nothing.

-- Where at least one interval of `source` is: union_spans('kernels').
CREATE MACRO union_spans(source) AS TABLE
WITH marked AS (
    SELECT rank, start_ns, end_ns,
           max(end_ns) OVER (PARTITION BY rank ORDER BY start_ns, end_ns
                             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reached
    FROM query_table(source) WHERE end_ns > start_ns
), islands AS (
    SELECT rank, start_ns, end_ns,
           sum(CASE WHEN reached >= start_ns THEN 0 ELSE 1 END)
               OVER (PARTITION BY rank ORDER BY start_ns, end_ns
                     ROWS UNBOUNDED PRECEDING) AS island
    FROM marked
)
SELECT rank, min(start_ns) AS start_ns, max(end_ns) AS end_ns
FROM islands GROUP BY rank, island ORDER BY rank, start_ns;

-- How many intervals of `first` and of `second` are open, from each time to the next.
CREATE MACRO open_spans(first, second) AS TABLE
WITH changes AS (
    SELECT rank, start_ns AS moment, 1 AS a, 0 AS b FROM query_table(first) WHERE end_ns > start_ns
    UNION ALL
    SELECT rank, end_ns, -1, 0 FROM query_table(first) WHERE end_ns > start_ns
    UNION ALL
    SELECT rank, start_ns, 0, 1 FROM query_table(second) WHERE end_ns > start_ns
    UNION ALL
    SELECT rank, end_ns, 0, -1 FROM query_table(second) WHERE end_ns > start_ns
), moments AS (
    SELECT rank, moment, sum(a) AS a, sum(b) AS b FROM changes GROUP BY rank, moment
)
SELECT rank, moment AS start_ns,
       lead(moment) OVER (PARTITION BY rank ORDER BY moment) AS end_ns,
       sum(a) OVER (PARTITION BY rank ORDER BY moment ROWS UNBOUNDED PRECEDING) AS in_first,
       sum(b) OVER (PARTITION BY rank ORDER BY moment ROWS UNBOUNDED PRECEDING) AS in_second
FROM moments;

-- Where an interval of each is: overlap_spans('comm', 'compute').
CREATE MACRO overlap_spans(first, second) AS TABLE
SELECT rank, start_ns, end_ns FROM open_spans(first, second)
WHERE in_first > 0 AND in_second > 0 ORDER BY rank, start_ns;

-- Where one of `first` and none of `second` is: exposed_spans('comm', 'compute').
CREATE MACRO exposed_spans(first, second) AS TABLE
SELECT rank, start_ns, end_ns FROM open_spans(first, second)
WHERE in_first > 0 AND in_second = 0 ORDER BY rank, start_ns;

-- Nanoseconds of a source's union for each rank: busy('kernels').
CREATE MACRO busy(source) AS TABLE
SELECT rank, sum(end_ns - start_ns)::BIGINT AS busy_ns
FROM union_spans(source) GROUP BY rank ORDER BY rank;
