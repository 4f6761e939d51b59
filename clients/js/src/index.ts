/** Client and worker for bedrockjobs. */

export * from "./client.js";
export * from "./errors.js";
export * from "./worker.js";
