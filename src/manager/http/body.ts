import type { IncomingMessage } from "node:http";
import type { Clock } from "../../kit/clock.ts";
import { BerthError } from "../../kit/errors.ts";
import { formatSize } from "../../kit/size.ts";

export const JSON_LIMIT = 1024 * 1024;
/** A body that stands still for so long is given up. */
const STALL_MS = 30_000;

const tooLarge = (limit: number) =>
  new BerthError("body-too-large", `The body is larger than the ${formatSize(limit)} that are taken here.`, {
    details: { limit },
  });

function declaredLength(request: IncomingMessage): number {
  return Number(request.headers["content-length"] ?? 0);
}

/**
 * Reads a whole body of at most `limit` bytes. Throws `body-too-large`, `body-stalled` when nothing comes for half a
 * minute, and `request-cut` when the client leaves.
 */
export function readBody(request: IncomingMessage, clock: Clock, limit = JSON_LIMIT): Promise<Buffer> {
  if (declaredLength(request) > limit) return Promise.reject(tooLarge(limit));
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const stalled = () =>
      done(new BerthError("body-stalled", "The body did not come in time: send it again."));
    let cancel = clock.after(STALL_MS, stalled);
    const done = (error?: BerthError) => {
      cancel();
      request.removeAllListeners("data");
      if (error === undefined) resolve(Buffer.concat(chunks, size));
      else reject(error);
    };
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size > limit) return done(tooLarge(limit));
      chunks.push(chunk);
      cancel();
      cancel = clock.after(STALL_MS, stalled);
    });
    request.once("end", () => done());
    request.once("error", () => done(new BerthError("request-cut", "The request was cut.")));
    request.once("close", () => done(new BerthError("request-cut", "The request was cut.")));
  });
}

const JSON_TYPE = /^application\/(json|[\w.-]+\+json)\s*(;|$)/i;

/** Parses a JSON body. An empty one counts as `{}`, so that a schema can name what is needed. */
export function parseJson(bytes: Buffer, contentType: string | undefined): unknown {
  if (bytes.length === 0) return {};
  if (contentType === undefined || !JSON_TYPE.test(contentType)) {
    throw new BerthError(
      "unsupported-media-type",
      `The body must be JSON (Content-Type: application/json); this one is ${contentType ?? "of no type"}.`,
    );
  }
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new BerthError("invalid-utf8", "The body is not valid UTF-8.");
  }
  try {
    return JSON.parse(text);
  } catch (err) {
    const where = err instanceof Error ? `: ${err.message}` : "";
    throw new BerthError("invalid-json", `The body is not valid JSON${where}.`);
  }
}

/** The query as an object; a name that is given twice is refused, because the server would have to choose. */
export function parseQuery(search: URLSearchParams): Record<string, string> {
  const query: Record<string, string> = Object.create(null);
  for (const [name, value] of search) {
    if (Object.hasOwn(query, name)) {
      throw new BerthError("invalid-request", `${name} is given twice in the query.`, { field: name });
    }
    query[name] = value;
  }
  return { ...query };
}

export function decodeParams(params: Readonly<Record<string, string>>): Record<string, string> {
  const decoded: Record<string, string> = {};
  for (const [name, value] of Object.entries(params)) {
    try {
      decoded[name] = decodeURIComponent(value);
    } catch {
      throw new BerthError("invalid-utf8", `${name} in the path is not valid percent-encoded UTF-8.`, {
        field: name,
      });
    }
  }
  return decoded;
}
