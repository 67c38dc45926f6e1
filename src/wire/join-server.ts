import type { Clock } from "../kit/clock.ts";
import { isBerthError } from "../kit/errors.ts";
import type { AgentId, ClusterId } from "../kit/ids.ts";
import type { Logger } from "../kit/log.ts";
import type { ByteStream } from "./byte-stream.ts";
import {
  type JoinAnswer,
  type JoinQuestion,
  joinQuestion,
  readMessage,
  writeMessage,
} from "./join-messages.ts";

/** A node that asks to join. Nothing in it is verified but that the sender knows what it says. */
export type JoinRequest = Omit<Extract<JoinQuestion, { ask: "join" }>, "ask"> & {
  /** The network address that it asks from. */
  readonly address: string;
};

export type JoinResult = { readonly agentId: AgentId; readonly certPem: string };

export type OnJoin = (request: JoinRequest) => Promise<JoinResult>;

export type AnswerJoinOptions = {
  readonly clusterId: ClusterId;
  readonly caPem: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onJoin: OnJoin;
  readonly address: string;
};

/** The whole exchange, both questions, may take this long. */
const JOIN_TIMEOUT_MS = 30_000;

async function decide(request: JoinRequest, options: AnswerJoinOptions): Promise<JoinAnswer> {
  const { clusterId, caPem, clock, log, onJoin } = options;
  try {
    const { agentId, certPem } = await onJoin(request);
    return { ok: true, agentId, clusterId, certPem, caPem, managerTime: clock.wall() };
  } catch (error) {
    if (isBerthError(error)) return { ok: false, code: error.code, sentence: error.message };
    log.error(
      { err: error, address: options.address },
      "A node could not join because of a fault of the manager",
    );
    const sentence = "The manager met a fault of its own. Its log says more.";
    return { ok: false, code: "internal", sentence };
  }
}

/** Answers one question of a node on its connection, then ends the connection. */
export async function answerJoin(stream: ByteStream, options: AnswerJoinOptions): Promise<void> {
  const { caPem, clock, address } = options;
  const cancel = clock.after(JOIN_TIMEOUT_MS, () => stream.destroy());
  try {
    const question = await readMessage(stream, joinQuestion);
    if (question.ask === "ca") await writeMessage(stream, { caPem, managerTime: clock.wall() });
    else {
      const { ask: _, ...request } = question;
      await writeMessage(stream, await decide({ ...request, address }, options));
    }
    stream.end();
    await stream.closed;
  } finally {
    cancel();
  }
}
