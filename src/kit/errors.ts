/** Facts that belong to a refusal, such as the limit it met. Plain JSON; never secrets. */
export type ErrorDetails = Readonly<Record<string, string | number | boolean | null | readonly string[]>>;

/** One of several things that are wrong with a request. */
export type Fault = {
  readonly code: string;
  readonly field?: string;
  readonly sentence: string;
  readonly details?: ErrorDetails;
};

export type BerthErrorOptions = {
  /** The request field at fault, in dotted form (`slots.mem`). */
  readonly field?: string;
  readonly details?: ErrorDetails;
  readonly cause?: unknown;
  /** Everything that is wrong, where a request was refused for several reasons; the error itself tells the first. */
  readonly faults?: readonly Fault[];
};

/**
 * An error that is meant for a person: a stable code that scripts may test, and a sentence that says
 * which limit or fact it met and what to do. Everything else that is thrown is a fault of ours and is
 * logged, never shown.
 */
export class BerthError extends Error {
  readonly code: string;
  readonly field: string | undefined;
  readonly details: ErrorDetails | undefined;
  readonly faults: readonly Fault[] | undefined;

  constructor(code: string, message: string, options: BerthErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "BerthError";
    this.code = code;
    this.field = options.field;
    this.details = options.details;
    this.faults = options.faults;
  }
}

export function isBerthError(value: unknown): value is BerthError {
  return value instanceof BerthError;
}

/** The sentence of any thrown value, for logs and for the text of a wrapping error. */
export function messageOf(value: unknown): string {
  return value instanceof Error ? value.message : String(value);
}
