import { api } from "../contract/api.ts";
import type { SessionDetail } from "../contract/sessions.ts";
import { isFinal } from "../contract/states.ts";
import { BerthError } from "../kit/errors.ts";
import type { Client } from "./client.ts";
import type { CommandSpec, Invocation } from "./command.ts";
import { EXIT_INTERRUPTED } from "./failures.ts";
import { createInterrupt } from "./interrupt.ts";
import { createStatusLine, POLL_MS, type StatusLine, waitText } from "./progress.ts";
import { SESSION_OPTIONS, sessionRequest } from "./session-options.ts";

/** The first looks come soon, because many sessions start within a second. */
const FIRST_POLL_MS = 200;

async function untilRunning(
  { clock }: Invocation,
  client: Client,
  id: string,
  line: StatusLine,
  signal: AbortSignal,
): Promise<SessionDetail> {
  for (let wait = FIRST_POLL_MS; ; wait = Math.min(wait * 1.5, POLL_MS)) {
    const now = await client.call(api.sessions.get, { params: { session: id } }, { signal, attempts: 20 });
    if (isFinal(now.status)) {
      const why = now.statusMessage ?? `It ended as ${now.status}.`;
      throw new BerthError(now.statusReason ?? "session-ended", `${now.name} did not start: ${why}`);
    }
    if (now.status === "RUNNING" || now.status === "DEGRADED") return now;
    line.update(waitText(now));
    await clock.sleep(wait, signal);
  }
}

async function start(invocation: Invocation): Promise<number> {
  const { io, json, show, options } = invocation;
  const client = await invocation.client();
  const body = sessionRequest(invocation, "interactive");
  const { items } = await client.call(api.sessions.create, { body });
  for (const notice of new Set(items.flatMap((item) => item.notices))) await show.note(`berth: ${notice}`);
  const names = items.map(({ name }) => name);
  if (options.flag("no-wait")) {
    await (json ? show.json(items.length === 1 ? items[0] : items) : show.line(names.join("\n")));
    return 0;
  }
  const line = createStatusLine(io);
  // A session that was asked for stays; leaving only ends the waiting.
  const interrupt = createInterrupt(io, (leave) => leave());
  try {
    const running: SessionDetail[] = [];
    for (const { id } of items) {
      running.push(await untilRunning(invocation, client, id, line, interrupt.signal));
      line.clear();
      if (!json) await show.line(running.at(-1)?.name ?? "");
    }
    if (json) await show.json(running.length === 1 ? running[0] : running);
    return 0;
  } catch (error) {
    line.clear();
    if (!interrupt.signal.aborted) throw error;
    await show.note(
      `berth: it goes on starting; "berth show ${names[0]}" tells, "berth rm ${names[0]}" ends it`,
    );
    return EXIT_INTERRUPTED;
  } finally {
    interrupt.stop();
  }
}

export const startCommand: CommandSpec = {
  usage: "start",
  summary: "Start an interactive session and print its name when it runs",
  options: [...SESSION_OPTIONS, { flags: "--no-wait", help: "print the name at once" }],
  examples: ["berth start --name lab-1 --cpu 2 --mem 4g", "berth exec -it lab-1 -- bash"],
  run: start,
};
