/** Errors: refusals of the server, a server that does not answer, and jobs without a result. */

import type { components } from "./api.js";

export type Problem = components["schemas"]["Problem"];

/** The base of all errors of this package. */
export class BedrockjobsError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** No reply came. Unless `sent` is false, the command may have been executed. */
export class ConnectionFailed extends BedrockjobsError {
  readonly sent: boolean;

  constructor(url: string, cause: unknown) {
    const inner = (cause as { cause?: { code?: string } }).cause?.code ?? String(cause);
    super(`no reply from ${url}: ${inner}`, { cause });
    this.sent = !["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"].includes(inner);
  }
}

/** The server refused the command, which has had no effect. */
export class CommandError extends BedrockjobsError {
  /** The HTTP status. */
  readonly status: number;
  /** Bedrock's code, such as 405 for a wrong state. */
  readonly code: number;
  /** Bedrock's words, such as `Run is over`. */
  readonly reason: string;
  /** What was expected, in a sentence. */
  readonly detail: string;
  /** The attribute that is wrong, if the refusal names one. */
  readonly attribute: string | undefined;

  constructor(problem: Problem) {
    super(problem.detail ? `${problem.reason}: ${problem.detail}` : problem.reason);
    ({ status: this.status, code: this.code, reason: this.reason, detail: this.detail } = problem);
    const named = /^(?:Missing|Malformed|Unknown attribute) (\w+)$/.exec(this.reason) ?? /^(\w+): /.exec(this.detail);
    this.attribute = named?.[1];
  }

  /** Whether the same command may succeed later. */
  get retryable(): boolean {
    return [429, 503, 504].includes(this.status);
  }
}

/** An attribute is missing or malformed. */
export class BadArguments extends CommandError {}
/** The token does not permit it. */
export class Forbidden extends CommandError {}
/** There is no such job, or none to take. */
export class NotFound extends CommandError {}
/** The job's state does not allow it. */
export class WrongState extends CommandError {}
/** A limit on numbers is reached, or the server is full or stopping. */
export class Unavailable extends CommandError {}

const KINDS: Record<number, typeof CommandError> = {
  400: BadArguments,
  401: BadArguments,
  402: BadArguments,
  403: Forbidden,
  404: NotFound,
  405: WrongState,
  429: Unavailable,
  503: Unavailable,
};

/** Return the error for a refusal. */
export function refusal(problem: Problem): CommandError {
  return new (KINDS[problem.code] ?? CommandError)(problem);
}

/** The awaited job failed for good, or was cancelled. */
export class JobFailed extends BedrockjobsError {
  constructor(
    readonly jobID: number,
    readonly state: string,
    readonly error: string,
  ) {
    super(`job ${jobID} is ${state}${error && `: ${error.split("\n", 1)[0]}`}`);
  }
}

/** Nothing is left of the awaited job: its `keep` was shorter than the wait. */
export class NoResult extends BedrockjobsError {}

/** Throw this in a handler to fail a job permanently, even if it has retries left. */
export class Fail extends BedrockjobsError {}
