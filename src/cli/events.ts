import { api } from "../contract/api.ts";
import { type Event, event } from "../contract/system.ts";
import { backoffMs } from "../kit/backoff.ts";
import { type CommandSpec, given, type Invocation } from "./command.ts";
import { isTransient } from "./failures.ts";
import { parseOrNull } from "./faults.ts";
import { patienceOf } from "./follow.ts";
import { createSseReader } from "./sse.ts";
import { clean } from "./text.ts";

const WAITS = { firstMs: 250, maxMs: 5000 };
/** A stream without a byte for so long is dead, in ms: a comment comes each 15 s. */
const SILENT_MS = 60_000;

function textOf({ at, kind, subject, data }: Event): string {
  const { name, ...rest } = data;
  const about = typeof name === "string" ? name : subject;
  const facts = Object.entries(rest)
    .filter(([, value]) => value !== null)
    .map(([key, value]) => `${key}=${typeof value === "object" ? JSON.stringify(value) : String(value)}`);
  return clean([at, kind, about, ...facts].join("  "));
}

async function events(invocation: Invocation): Promise<undefined> {
  const { io, clock, options, json, show } = invocation;
  const kinds = options.many("kind");
  let after = options.integer("after");
  const filter = given({
    session: options.text("session"),
    kind: kinds.length === 0 ? undefined : kinds.join(","),
  });
  const client = await invocation.client();
  const patience = patienceOf(io);
  let lostSince: number | undefined;
  let failures = 0;
  for (;;) {
    const silence = new AbortController();
    const arm = () => clock.after(SILENT_MS, () => silence.abort(new DOMException("silent", "TimeoutError")));
    let cancel = arm();
    try {
      const query = { ...filter, ...given({ after }) };
      const read = createSseReader();
      for await (const chunk of await client.stream(
        api.system.events,
        { query },
        { signal: silence.signal },
      )) {
        cancel();
        cancel = arm();
        lostSince = undefined;
        failures = 0;
        for (const { data } of read(chunk)) {
          const parsed = event.safeParse(parseOrNull(data));
          // Kinds of a newer manager are passed over, not died of.
          if (!parsed.success) continue;
          after = parsed.data.seq;
          await (json ? io.out(`${JSON.stringify(parsed.data)}\n`) : show.line(textOf(parsed.data)));
        }
      }
    } catch (error) {
      if (!isTransient(error) && !silence.signal.aborted) throw error;
      lostSince ??= clock.mono();
      if (clock.mono() - lostSince > patience) throw error;
    } finally {
      cancel();
      silence.abort();
    }
    failures++;
    await clock.sleep(backoffMs(failures, { ...WAITS, jitter: Math.random }));
  }
}

export const eventsCommand: CommandSpec = {
  usage: "events",
  summary: "Print events as they happen, one on a line; Ctrl-C ends it",
  options: [
    { flags: "--after <seq>", help: "begin behind this sequence number" },
    { flags: "--session <session>", help: "of one session", completes: "sessions" },
    { flags: "--kind <kind>", help: "of this kind, or family: session.status, agent", many: true },
  ],
  examples: ["berth events", "berth events --kind session --json"],
  run: events,
};
