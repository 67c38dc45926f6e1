import type { z } from "zod";
import type { Clock, WallMs } from "../kit/clock.ts";
import { BerthError } from "../kit/errors.ts";
import type { AgentId, ClusterId } from "../kit/ids.ts";
import { createByteStream } from "./byte-stream.ts";
import { BACKDATE_MS, certificateInfo, fingerprint, onlyCertificate } from "./certificates.ts";
import { type DialOptions, dialManager, JOIN_PROTOCOL, type ManagerAddress } from "./dial.ts";
import { caAnswer, type JoinQuestion, joinAnswer, readMessage, writeMessage } from "./join-messages.ts";
import type { JoinToken } from "./join-token.ts";

export type JoinOptions = ManagerAddress & {
  readonly token: JoinToken;
  readonly csrPem: string;
  readonly hostname: string;
  readonly version: string;
  readonly clock: Clock;
  readonly timeoutMs?: number;
};

export type Joined = {
  readonly agentId: AgentId;
  readonly clusterId: ClusterId;
  readonly certPem: string;
  readonly caPem: string;
  /** The manager's clock minus this node's, in ms. */
  readonly skewMs: number;
  /** Set when the clocks differ by more than a minute: a sentence for the person who joins the node. */
  readonly skewWarning: string | undefined;
};

const SKEW_TOLD_MS = 60_000;
/** Beyond this the certificates would not be valid on one of the two machines. */
const SKEW_REFUSED_MS = BACKDATE_MS - 60 * 60 * 1000;

function skewSentence(skewMs: number): string {
  const seconds = Math.round(Math.abs(skewMs) / 1000);
  const side = skewMs > 0 ? "behind" : "ahead of";
  return `This node's clock is ${seconds} s ${side} the manager's. Set both clocks by NTP.`;
}

type Exchange = Pick<DialOptions, "trust"> & { readonly question: JoinQuestion };

async function exchange<T>(
  options: JoinOptions,
  { trust, question }: Exchange,
  schema: z.ZodType<T>,
): Promise<T> {
  const { host, port, clock } = options;
  const { timeoutMs } = options;
  const socket = await dialManager({
    host,
    port,
    protocol: JOIN_PROTOCOL,
    trust,
    clock,
    ...(timeoutMs !== undefined && { timeoutMs }),
  });
  const stream = createByteStream(socket);
  const cancel = clock.after(timeoutMs ?? 30_000, () => stream.destroy());
  try {
    await writeMessage(stream, question);
    return await readMessage(stream, schema);
  } finally {
    cancel();
    stream.destroy();
  }
}

/** Reads the CA's certificate from whoever answers, and takes it only if it is the one that the token names. */
async function fetchCa(options: JoinOptions): Promise<{ caPem: string; managerTime: WallMs }> {
  const answer = await exchange(options, { trust: undefined, question: { ask: "ca" } }, caAnswer);
  // The text may hold a second certificate behind the right one: TLS would trust that as well.
  const caPem = onlyCertificate(answer.caPem);
  if (fingerprint(caPem) !== options.token.caFingerprint) {
    const sentence =
      `What answers at ${options.host} port ${options.port} is not the manager that made this join token: ` +
      "its CA has another fingerprint. Check the address, or make a new token.";
    throw new BerthError("manager-not-trusted", sentence, { field: "token" });
  }
  return { caPem, managerTime: answer.managerTime };
}

/**
 * Joins this node to the cluster that made the token: learns the CA, verifies it by the token's
 * fingerprint, and only then, on a second and verified connection, shows the secret and has the key
 * certified. Throws `manager-unreachable`, `manager-not-trusted`, `clock-skew`, `bad-join-message`, or what
 * the manager refuses with.
 */
export async function joinCluster(options: JoinOptions): Promise<Joined> {
  const { token, csrPem, hostname, version, clock } = options;
  const { caPem, managerTime } = await fetchCa(options);
  const roughSkew = managerTime - clock.wall();
  if (Math.abs(roughSkew) > SKEW_REFUSED_MS) {
    throw new BerthError("clock-skew", `${skewSentence(roughSkew)} Certificates cannot work across that.`);
  }
  const wallMs = clock.wall();
  const question = {
    ask: "join",
    tokenId: token.id,
    secret: token.secret,
    csrPem,
    hostname,
    version,
    wallMs,
  } as const;
  const answer = await exchange(options, { trust: { caPem }, question }, joinAnswer);
  if (!answer.ok) throw new BerthError(answer.code, answer.sentence);
  const { identity } = certificateInfo(answer.certPem);
  if (
    identity.role !== "agent" ||
    identity.agentId !== answer.agentId ||
    identity.clusterId !== answer.clusterId
  ) {
    throw new BerthError("bad-certificate", "The manager issued a certificate for someone else.");
  }
  const skewMs = answer.managerTime - (wallMs + clock.wall()) / 2;
  const skewWarning = Math.abs(skewMs) > SKEW_TOLD_MS ? skewSentence(skewMs) : undefined;
  const { agentId, clusterId, certPem } = answer;
  return { agentId, clusterId, certPem, caPem, skewMs, skewWarning };
}
