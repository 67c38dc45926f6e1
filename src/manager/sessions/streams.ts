import { isFinal } from "../../contract/states.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, isBerthError } from "../../kit/errors.ts";
import { createFrameDecoder, encodeFrame, type Frame, readFrames, writeFrame } from "../../kit/frames.ts";
import type { AgentId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { ByteStream } from "../../wire/byte-stream.ts";
import { actorOf, type Principal } from "../accounts/principal.ts";
import type { AgentPort, StreamTarget } from "../agents/ports.ts";
import type { ClientSocket } from "../http/handle.ts";
import type { Store } from "../store/store.ts";
import { readExecOpen } from "./exec-rules.ts";
import { firstFrame } from "./first-frame.ts";
import { kernelsOf } from "./repository.ts";
import type { SessionService } from "./service.ts";

export type StreamDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly agents: AgentPort;
  readonly sessions: Pick<SessionService, "reach">;
};

type Target = {
  readonly agent: AgentId;
  readonly kernelId: string;
  readonly generation: number;
  readonly sessionId: string;
  readonly name: string;
};

export type Talk = (socket: ClientSocket) => Promise<void>;

/** Bytes of standard input that a client may send ahead of what the node has taken. */
const STDIN_WINDOW = 256 * 1024;
/** Credit is given back in steps of this size, not for each frame. */
const WINDOW_STEP = 64 * 1024;

const PASSED: ReadonlySet<Frame["type"]> = new Set([
  "stdout",
  "stderr",
  "exit",
  "error",
  "log-gap",
  "log-end",
]);
const LAST: ReadonlySet<Frame["type"]> = new Set(["exit", "error", "log-end"]);

/** Frames of a client's messages: one frame a message. */
async function* clientFrames(messages: AsyncIterable<Uint8Array>): AsyncGenerator<Frame> {
  for await (const message of messages) {
    const decoder = createFrameDecoder();
    yield* decoder.push(message);
    if (decoder.pending() > 0) throw new BerthError("bad-frame", "A message holds one whole frame.");
  }
}

async function tell(socket: ClientSocket, error: unknown): Promise<void> {
  const known = isBerthError(error);
  const code = known ? error.code : "stream-cut";
  const message = known ? error.message : "The connection to the node was cut.";
  await socket.send(encodeFrame({ type: "error", code, message }));
}

/** Runs commands in sessions and shows their output, between a client's WebSocket and a node's data stream. */
export function createSessionStreams(deps: StreamDeps) {
  const { store, clock, log, agents } = deps;

  /** The running kernel of a session. Throws `session-not-running`, `session-ended` or `agent-lost`. */
  async function target(principal: Principal, reference: string): Promise<Target> {
    const { session, kernel } = await store.read(async (db) => {
      const row = await deps.sessions.reach(db, principal, reference, "session.exec-any");
      const [first] = await kernelsOf(db, row.id);
      return { session: row, kernel: first };
    });
    const { name, status } = session;
    if (isFinal(status)) throw new BerthError("session-ended", `${name} has ended: it is ${status}.`);
    if (status !== "RUNNING" || kernel === undefined || kernel.agent_id === null) {
      throw new BerthError("session-not-running", `${name} is ${status}. It must be RUNNING for this.`);
    }
    if (!agents.ready(kernel.agent_id)) {
      const node = session.agent_name ?? "its node";
      throw new BerthError(
        "agent-lost",
        `${name} runs on ${node}, which does not answer now. Try again later.`,
      );
    }
    const { id: kernelId, generation, agent_id: agent } = kernel;
    return { agent, kernelId, generation, sessionId: session.id, name };
  }

  /** Output of the node to the client; ends with what ended the command. */
  async function pumpOut(stream: ByteStream, socket: ClientSocket): Promise<void> {
    for await (const frame of readFrames(stream)) {
      if (frame.type === "log") {
        // Watched output comes as the log's frames; on this socket it is plain output.
        await socket.send(encodeFrame({ type: frame.stream, bytes: frame.bytes }));
        continue;
      }
      if (PASSED.has(frame.type)) await socket.send(encodeFrame(frame));
      if (LAST.has(frame.type)) return;
    }
    throw new BerthError("stream-cut", "The connection to the node was cut before the command ended.");
  }

  /** What the client sends, to the node, within the credit that it was given. */
  async function pumpIn(
    frames: AsyncGenerator<Frame>,
    stream: ByteStream,
    socket: ClientSocket,
  ): Promise<void> {
    let credit = STDIN_WINDOW;
    let taken = 0;
    await socket.send(encodeFrame({ type: "window", credit: STDIN_WINDOW }));
    for await (const frame of frames) {
      if (frame.type === "stdin") {
        credit -= frame.bytes.length;
        if (credit < 0)
          throw new BerthError("window-exceeded", "More input was sent than WINDOW frames granted.");
        await writeFrame(stream, frame);
        taken += frame.bytes.length;
        if (taken < WINDOW_STEP) continue;
        credit += taken;
        await socket.send(encodeFrame({ type: "window", credit: taken }));
        taken = 0;
      } else if (frame.type === "stdin-eof" || frame.type === "resize" || frame.type === "signal") {
        await writeFrame(stream, frame);
      }
    }
  }

  async function run(
    socket: ClientSocket,
    where: Target,
    request: StreamTarget,
    frames: AsyncGenerator<Frame>,
    signal: AbortSignal,
  ): Promise<void> {
    const stream = await agents.openStream(where.agent, request, signal);
    const cut = () => stream.destroy();
    signal.addEventListener("abort", cut, { once: true });
    void socket.closed.then(cut);
    try {
      // Whichever way ends first ends the other: a client that left, or a command that is over.
      const input = pumpIn(frames, stream, socket);
      input.catch(() => {});
      const over = input.then(
        () => socket.closed,
        (error: unknown) => Promise.reject(error),
      );
      await Promise.race([pumpOut(stream, socket), over]);
    } finally {
      signal.removeEventListener("abort", cut);
      stream.destroy();
    }
  }

  function talk(
    where: Target,
    signal: AbortSignal,
    open: (frames: AsyncGenerator<Frame>) => Promise<StreamTarget>,
  ): Talk {
    return async (socket) => {
      const frames = clientFrames(socket.messages);
      try {
        await run(socket, where, await open(frames), frames, signal);
      } catch (error) {
        if (!isBerthError(error))
          log.debug({ err: error, session: where.sessionId }, "a stream ended with a cut");
        await tell(socket, error);
      }
      socket.close(1000);
    };
  }

  return {
    exec: async (principal: Principal, reference: string, signal: AbortSignal): Promise<Talk> => {
      const where = await target(principal, reference);
      return talk(where, signal, async (frames) => {
        const first = await firstFrame(frames, clock);
        const open = readExecOpen(first?.type === "open" ? first.params : undefined);
        const { environment, workdir = "", ...rest } = open;
        const { kernelId, generation } = where;
        const who = actorOf(principal);
        // The audit's line: who ran what where. Never the environment, and of the arguments only the program.
        log.info(
          {
            audit: "session.exec",
            actor: who,
            session: where.sessionId,
            name: where.name,
            program: rest.argv[0],
          },
          "a command was run in a session",
        );
        return { $case: "exec", value: { ...rest, kernelId, generation, environment, workdir } };
      });
    },
    attach: async (principal: Principal, reference: string, signal: AbortSignal): Promise<Talk> => {
      const where = await target(principal, reference);
      const { kernelId, generation } = where;
      return talk(where, signal, async () => ({ $case: "attach", value: { kernelId, generation } }));
    },
  };
}

export type SessionStreams = ReturnType<typeof createSessionStreams>;
