import pino from "pino";

export type LogLevel = "trace" | "debug" | "info" | "warn" | "error" | "fatal" | "silent";

/** One line: fields for machines, a sentence for people. An error goes under the field `err`. */
export interface LogLine {
  (fields: object, sentence: string): void;
  (sentence: string): void;
}

export interface Logger {
  readonly trace: LogLine;
  readonly debug: LogLine;
  readonly info: LogLine;
  readonly warn: LogLine;
  readonly error: LogLine;
  readonly fatal: LogLine;
  /** A logger whose every line carries these fields too. */
  child(fields: Readonly<Record<string, unknown>>): Logger;
}

export type LoggerOptions = {
  readonly level: LogLevel;
  /** The part that speaks, such as `manager`. */
  readonly name: string;
  /** Where lines go, one `write` for each; standard error by default. */
  readonly stream?: { write(line: string): void };
};

const SECRET_KEYS = ["password", "token", "authorization", "secret", "env", "cookie", "privateKey"];
const SECRET_PATHS = SECRET_KEYS.flatMap((key) => [key, `*.${key}`, `*.*.${key}`]);

/**
 * A logger of JSON lines. Values under a secret's name (password, token, authorization, secret, env …)
 * are replaced, down to the third level of a line's fields.
 */
export function createLogger({ level, name, stream }: LoggerOptions): Logger {
  // Written synchronously and without a worker: lines survive an exit, and a compiled file has no worker to load.
  const destination = stream ?? pino.destination({ fd: 2, sync: true });
  return pino(
    {
      level,
      name,
      base: { pid: process.pid },
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRET_PATHS, censor: "[hidden]" },
      serializers: { err: pino.stdSerializers.err, error: pino.stdSerializers.err },
    },
    destination,
  );
}

const nothing = (): void => {};

/** Says nothing; for tests. */
export const silentLogger: Logger = {
  trace: nothing,
  debug: nothing,
  info: nothing,
  warn: nothing,
  error: nothing,
  fatal: nothing,
  child: () => silentLogger,
};
