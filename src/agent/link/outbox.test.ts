import { describe, expect, test } from "bun:test";
import { silentLogger } from "../../kit/log.ts";
import type { AgentMessage } from "../../wire/generated/berth.ts";
import { type Body, createOutbox } from "./outbox.ts";

const beat = (wallMs: number): Body => ({ $case: "heartbeat", value: { wallMs } });
const values = (sent: readonly AgentMessage[]) =>
  sent.map(({ body }) => (body?.$case === "heartbeat" ? body.value.wallMs : undefined));

/** Sends all that waits and stops. */
async function drained(outbox: ReturnType<typeof createOutbox>): Promise<AgentMessage[]> {
  const sent: AgentMessage[] = [];
  const abort = new AbortController();
  const draining = outbox.drain(async (message) => {
    sent.push(message);
  }, abort.signal);
  while (outbox.size() > 0) await new Promise((resolve) => setImmediate(resolve));
  abort.abort();
  await draining;
  return sent;
}

describe("the outbox", () => {
  test("sends in order, and of one key only the latest, in its first place", async () => {
    const outbox = createOutbox({ limit: 10, log: silentLogger });
    outbox.put("a", () => beat(1));
    outbox.put("b", () => beat(2));
    outbox.put("a", () => beat(3));
    expect(values(await drained(outbox))).toEqual([3, 2]);
  });

  test("a message says what holds when it is sent", async () => {
    const outbox = createOutbox({ limit: 10, log: silentLogger });
    let now = 1;
    outbox.put("a", () => beat(now));
    outbox.put("none", () => undefined);
    now = 2;
    expect(values(await drained(outbox))).toEqual([2]);
  });

  test("what could not be sent waits for the next link, unless a later word took its place", async () => {
    const outbox = createOutbox({ limit: 10, log: silentLogger });
    const fails = async () => {
      throw new Error("the link is over");
    };
    outbox.put("a", () => beat(1));
    await expect(outbox.drain(fails, new AbortController().signal)).rejects.toThrow("over");
    expect(values(await drained(outbox))).toEqual([1]);

    outbox.put("a", () => beat(2));
    const replaced = async () => {
      outbox.put("a", () => beat(3));
      throw new Error("the link is over");
    };
    await expect(outbox.drain(replaced, new AbortController().signal)).rejects.toThrow("over");
    expect(values(await drained(outbox))).toEqual([3]);
  });

  test("is bounded: the oldest goes first", async () => {
    const outbox = createOutbox({ limit: 2, log: silentLogger });
    for (const n of [1, 2, 3]) outbox.put(`k${n}`, () => beat(n));
    expect(values(await drained(outbox))).toEqual([2, 3]);
  });

  test("a new link needs no statuses of before: its full report says them", () => {
    const outbox = createOutbox({ limit: 10, log: silentLogger });
    for (const key of ["kernel:x.g1", "heartbeat", "usage", "pull:1", "failed:x.1"])
      outbox.put(key, () => beat(1));
    outbox.dropRepeatable();
    expect(outbox.size()).toBe(2);
  });
});
