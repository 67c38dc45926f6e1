import { describe, expect, test } from "bun:test";
import http from "node:http";
import fc from "fast-check";
import type { Problem } from "../contract/errors.ts";
import type { SessionDetail } from "../contract/sessions.ts";
import { encodeFrame, type Frame } from "../kit/frames.ts";
import { createClient } from "./client.ts";
import { followLogs } from "./follow.ts";
import { detail, ENDED, logFrame, PROMPT_CLOCK } from "./testing.ts";

const clock = PROMPT_CLOCK;

/** Frames to answer with, and whether the connection is cut behind them; or a refusal. */
type Answer = { readonly frames: readonly Frame[]; readonly cut?: "at once" | "when read" } | Problem;
type Query = Readonly<Record<string, string>>;

/** A manager that can cut a connection in the middle of an answer. */
async function cuttingManager(logs: (query: Query) => Answer | undefined, session: SessionDetail) {
  const queries: Query[] = [];
  let onRead: (() => void) | undefined;
  const server = http.createServer((request, response) => {
    const url = new URL(request.url ?? "/", "http://x");
    if (!url.pathname.endsWith("/logs")) return response.end(JSON.stringify(session));
    const query = Object.fromEntries(url.searchParams);
    queries.push(query);
    const answer = logs(query);
    if (answer === undefined) return request.socket.destroy();
    if ("code" in answer) return response.writeHead(answer.status).end(JSON.stringify(answer));
    response.write(Buffer.concat(answer.frames.map((frame) => encodeFrame(frame))));
    if (!answer.cut) return response.end();
    const cut = () => request.socket.destroy();
    if (answer.cut === "when read") onRead = cut;
    return response.write("", answer.cut === "at once" ? cut : undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}`,
    queries,
    /** Tells that something of the answer has been read. */
    wasRead: () => {
      onRead?.();
      onRead = undefined;
    },
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

async function follow(
  logs: (query: Query) => Answer | undefined,
  options: { follow?: boolean; tail?: number; session?: SessionDetail } = {},
) {
  const manager = await cuttingManager(logs, options.session ?? detail());
  const target = { url: manager.url, trust: { kind: "system" as const } };
  const written: Uint8Array[] = [];
  const gaps: number[] = [];
  try {
    await followLogs({
      client: createClient({ target, clock }),
      clock,
      session: "s",
      sink: {
        write: async (_, bytes) => {
          written.push(bytes.slice());
          manager.wasRead();
        },
        gap: async (dropped) => {
          gaps.push(dropped);
          manager.wasRead();
        },
      },
      signal: new AbortController().signal,
      follow: options.follow ?? true,
      tail: options.tail,
      patienceMs: 60_000,
    });
  } finally {
    manager.stop();
  }
  return { text: Buffer.concat(written).toString("latin1"), gaps, queries: manager.queries };
}

const PROBLEM: Problem = {
  type: "urn:berth:error:session-not-found",
  title: "Not found",
  status: 404,
  code: "session-not-found",
  detail: "There is no session s.",
  requestId: "r",
};
const end = (offset: number, final = true): Frame => ({ type: "log-end", offset, final });

describe("following a log", () => {
  test("every byte comes once, wherever and however often the connection is cut", async () => {
    const bytes = fc.uint8Array({ minLength: 1, maxLength: 400 });
    await fc.assert(
      fc.asyncProperty(
        bytes,
        fc.array(fc.nat(400), { maxLength: 5 }),
        fc.nat(20),
        async (output, cuts, overlap) => {
          const whole = Buffer.from(output).toString("latin1");
          const ends = [...cuts];
          const { text } = await follow((query) => {
            // A manager may begin earlier than asked, at a frame's start.
            const from = Math.max(0, Number(query.offset ?? 0) - overlap);
            const cut = ends.shift();
            const stop = cut === undefined ? output.length : Math.min(Math.max(cut, from), output.length);
            const part = {
              type: "log",
              offset: from,
              stream: "stdout",
              bytes: output.subarray(from, stop),
            } as const;
            return cut === undefined ? { frames: [part, end(stop)] } : { frames: [part], cut: "at once" };
          });
          expect(text).toBe(whole);
        },
      ),
      { numRuns: 30 },
    );
  });

  test("an answer that ends in order without its last frame is asked on", async () => {
    const answers: Answer[] = [{ frames: [logFrame(0, "ab")] }, { frames: [logFrame(2, "cd"), end(4)] }];
    const { text, queries } = await follow(() => answers.shift());
    expect(text).toBe("abcd");
    expect(queries.map((query) => query.offset)).toEqual(["0", "2"]);
  });

  test("what is lost is told and counted once", async () => {
    const gap: Frame = { type: "log-gap", offset: 2, dropped: 10 };
    const answers: Answer[] = [
      { frames: [logFrame(0, "ab"), gap], cut: "when read" },
      { frames: [gap, logFrame(12, "z"), end(13)] },
    ];
    const { text, gaps, queries } = await follow(() => answers.shift());
    expect(text).toBe("abz");
    expect(gaps).toEqual([10]);
    expect(queries[1]?.offset).toBe("12");
  });

  test("a tail goes on by offset once something has come", async () => {
    const answers: Answer[] = [
      { frames: [logFrame(90, "last\n")], cut: "when read" },
      { frames: [logFrame(95, "x"), end(96)] },
    ];
    const { text, queries } = await follow(() => answers.shift(), { tail: 1 });
    expect(text).toBe("last\nx");
    expect(queries[0]).toMatchObject({ tail: "1" });
    expect(queries[0]?.offset).toBeUndefined();
    expect(queries[1]).toMatchObject({ offset: "95" });
  });

  test("without follow it ends with what is there", async () => {
    const { text, queries } = await follow(() => ({ frames: [logFrame(0, "ab"), end(2, false)] }), {
      follow: false,
    });
    expect(text).toBe("ab");
    expect(queries).toHaveLength(1);
  });

  test("a refusal is final", async () => {
    const failing = follow(() => PROBLEM);
    expect(failing).rejects.toThrow("There is no session s.");
  });

  test("a session that has ended without a last frame does not keep anybody", async () => {
    const { text } = await follow(() => ({ frames: [] }), { session: ENDED });
    expect(text).toBe("");
  });
});
