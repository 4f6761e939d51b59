-- The function with which applications create jobs in transactions of their own. `schema.py` replaces
-- what is in angle brackets.

CREATE OR REPLACE FUNCTION create_job(name text, data jsonb DEFAULT '{}', options jsonb DEFAULT '{}')
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = "<schema>", pg_temp SET timezone = 'UTC' SET datestyle = 'ISO'
SET standard_conforming_strings = on AS $body$
#variable_conflict use_variable
DECLARE
    moved_to text;
    given record;
    first_run text := options ->> 'firstRun';
    new_job bigint;
BEGIN
    SELECT value INTO moved_to FROM meta WHERE key = 'movedTo';
    IF moved_to IS NOT NULL THEN
        RAISE EXCEPTION 'create_job: the queue was moved to %', moved_to
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF coalesce(length(name), 0) NOT BETWEEN 1 AND <name_max> THEN
        RAISE EXCEPTION 'name: expected 1 to <name_max> characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF name ~ '[\u0001-\u0008\u000a-\u001f\u007f]' THEN
        RAISE EXCEPTION 'name: expected no control characters' USING ERRCODE = 'invalid_parameter_value';
    ELSIF jsonb_typeof(data) <> 'object' THEN
        RAISE EXCEPTION 'data: expected a JSON object' USING ERRCODE = 'invalid_parameter_value';
    ELSIF octet_length(data::text) > <data_max> THEN
        RAISE EXCEPTION 'data: expected a JSON object of at most <data_max> bytes'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF jsonb_typeof(options) <> 'object' OR octet_length(options::text) > <data_max> THEN
        RAISE EXCEPTION 'options: expected a JSON object of at most <data_max> bytes'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    FOR given IN
        SELECT one.key, one.value #>> '{}' AS text, known.pattern, known.expected
        FROM jsonb_each(options) AS one LEFT JOIN (VALUES
            <known>
        ) AS known (key, pattern, expected) ON known.key = one.key
    LOOP
        IF given.pattern IS NULL THEN
            RAISE EXCEPTION 'options: unknown attribute %, expected one of <names>', left(given.key, 100)
                USING ERRCODE = 'invalid_parameter_value';
        ELSIF given.text !~* given.pattern THEN
            RAISE EXCEPTION '%: expected %, not %', given.key, given.expected, left(given.text, 100)
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
    END LOOP;
    IF first_run !~* '<offset>' THEN
        BEGIN
            IF first_run !~ '<date>' THEN
                RAISE invalid_datetime_format;
            END IF;
            PERFORM first_run::timestamptz;
        EXCEPTION WHEN data_exception THEN
            RAISE EXCEPTION 'firstRun: expected %, not %', '<date_words>', left(first_run, 100)
                USING ERRCODE = 'invalid_parameter_value';
        END;
    END IF;
    LOOP
        new_job := nextval('jobIDs');
        EXIT WHEN NOT EXISTS (SELECT FROM jobs WHERE jobID = new_job);
    END LOOP;
    INSERT INTO inbox (jobID, at, name, data, options, by) VALUES (
        new_job,
        coalesce(nullif((SELECT clock FROM control), ''),
            to_char(clock_timestamp(), 'YYYY-MM-DD HH24:MI:SS.MS')),
        name, coalesce(data, '{}')::text, coalesce(options, '{}')::text, session_user
    );
    PERFORM pg_notify('<schema>', 'sql {"inbox": true}');
    RETURN new_job;
END $body$;
