/** Commands of the server, typed by its OpenAPI description. */

import type { components, paths } from "./api.js";
import { ConnectionFailed, JobFailed, NoResult, NotFound, refusal, type Problem } from "./errors.js";

export type Schemas = components["schemas"];
export type Command = { [C in keyof Schemas]: `/${C}` extends keyof paths ? C : never }[keyof Schemas];
type Answering<R> = { post: { responses: { 200: { content: { "application/json": R } } } } };
export type ReplyTo<C extends Command> = paths[`/${C}`] extends Answering<infer R> ? R : unknown;
export type JSONObject = Record<string, unknown>;

export interface ClientOptions {
  /** The server, `http://localhost:8888` if left out. */
  url?: string;
  /** A token, if the server requires one. */
  token?: string;
}

export interface WaitOptions {
  /** Ends the wait with its reason, for example `AbortSignal.timeout(30_000)`. */
  signal?: AbortSignal | undefined;
}

const REPLY_MS = 30_000;
/** Wait of one request for the end of a run: below the timeout of most proxies. */
const WAIT_MS = 30_000;
/** Longest pause between two looks at a job that has not been taken. */
const POLL_MS_MAX = 1_000;
/** Position after each line of a run's output, so that a wait for output ends with the run. */
const END_OF_OUTPUT = Number.MAX_SAFE_INTEGER;

export class Client {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor({ url = "http://localhost:8888", token }: ClientOptions = {}) {
    this.#url = url.replace(/\/$/, "");
    this.#headers = { "Content-Type": "application/json" };
    if (token) this.#headers["Authorization"] = `Bearer ${token}`;
  }

  /** Send a command. Rejects with a CommandError, ConnectionFailed, or the reason of the signal. */
  async call<C extends Command>(command: C, request: Schemas[C], { signal }: WaitOptions = {}): Promise<ReplyTo<C>> {
    signal?.throwIfAborted();
    const { connection, timeout = 60_000 } = request as { connection?: string; timeout?: number };
    const url = `${this.#url}/${command}`;
    const body = JSON.stringify(request);
    const ends = new AbortController();
    const abort = () => ends.abort(signal?.reason);
    const limit = setTimeout(abort, REPLY_MS + (connection === "wait" ? timeout : 0));
    signal?.addEventListener("abort", abort);
    let status: number, text: string;
    try {
      const response = await fetch(url, { method: "POST", headers: this.#headers, body, signal: ends.signal });
      status = response.status;
      text = await response.text();
    } catch (error) {
      signal?.throwIfAborted();
      throw new ConnectionFailed(url, error);
    } finally {
      clearTimeout(limit);
      signal?.removeEventListener("abort", abort);
    }
    if (status < 300) return JSON.parse(text) as ReplyTo<C>;
    throw refusal(problemIn(text, status));
  }

  /** Create a job and return its jobID. */
  async createJob(job: Schemas["CreateJob"]): Promise<number> {
    return (await this.call("CreateJob", job)).jobID;
  }

  /** Create a job whose result is kept, for an hour unless `keep` says otherwise. */
  async enqueue<R extends JSONObject = JSONObject>(
    name: string,
    data: JSONObject = {},
    options: Omit<Schemas["CreateJob"], "name" | "data"> = {},
  ): Promise<Handle<R>> {
    return new Handle<R>(this, await this.createJob({ keep: "1h", ...options, name, data }));
  }
}

/** A job that was created. */
export class Handle<R extends JSONObject = JSONObject> {
  constructor(
    readonly client: Client,
    readonly jobID: number,
  ) {}

  /** Return the job's state. Rejects with NotFound if the job no longer exists. */
  async state(): Promise<string> {
    return (await this.client.call("QueryJob", { jobID: this.jobID })).state ?? "";
  }

  /** Cancel the job, which also stops its run. */
  async cancel(): Promise<void> {
    await this.client.call("CancelJob", { jobID: this.jobID, any: true });
  }

  /** Wait until the job has ended and return what it reported. Rejects with JobFailed or NoResult. */
  async wait({ signal }: WaitOptions = {}): Promise<R> {
    for (let pause = 50; ; pause = Math.min(2 * pause, POLL_MS_MAX)) {
      const job = await this.#look(signal);
      const state = job?.state ?? "";
      if (state === "FINISHED") return (job?.result ?? {}) as R;
      if (state === "FAILED" || state === "CANCELLED") throw new JobFailed(this.jobID, state, job?.error ?? "");
      const run = (await this.client.call("ListRuns", { jobID: this.jobID, limit: 1 }, { signal })).runs[0];
      if (run?.status === "running") {
        // Its end is reported at once.
        const end = { runID: run.runID, after: END_OF_OUTPUT, connection: "wait", timeout: WAIT_MS };
        await this.client.call("ReadOutput", end, { signal }).catch(unlessGone);
      } else if (job) {
        await sleep(pause, signal);
      } else if (run) {
        const status = ["terminated", "killed"].includes(run.status) ? "CANCELLED" : run.status;
        if (status !== "success") throw new JobFailed(this.jobID, status, run.error);
        return (run.result ?? {}) as R;
      } else {
        throw new NoResult(`job ${this.jobID} no longer exists, and no run says how it ended`);
      }
    }
  }

  async #look(signal?: AbortSignal): Promise<Schemas["ShownJobReply"] | undefined> {
    return this.client.call("QueryJob", { jobID: this.jobID }, { signal }).catch(unlessGone);
  }
}

/** Resolve after some milliseconds, or reject when the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Return nothing for what does not exist; throw other errors. */
export function unlessGone(error: unknown): undefined {
  if (!(error instanceof NotFound)) throw error;
}

function problemIn(text: string, status: number): Problem {
  try {
    const problem = JSON.parse(text) as Problem;
    if (typeof problem.code === "number") return problem;
  } catch {
    // A proxy may answer in its own words.
  }
  return { type: "about:blank", title: text, status, detail: "", code: status, reason: text || `status ${status}` };
}
