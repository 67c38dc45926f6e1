import type { WallMs } from "../../kit/clock.ts";
import type { ErrorDetails } from "../../kit/errors.ts";
import type { ResourceSlots } from "../../kit/slots.ts";
import type { ServicePort } from "../images/labels.ts";
import type { ResourcePolicy } from "../policies/limits.ts";
import type { NodeOffer, SessionType } from "../scheduling/types.ts";

/** What a person asks for. A null or absent value was not stated and gets a default. */
export type AdmissionRequest = {
  readonly type: SessionType;
  readonly name: string | null;
  /** How many identical sessions, 1 to 100: all of them or none. */
  readonly count: number;
  /** Milli-cores, bytes and units of further slots. */
  readonly slots: Readonly<Record<string, number | null | undefined>>;
  /** Shared memory in bytes; part of the memory. */
  readonly shm: number | null;
  readonly priority: number | null;
  readonly env: Readonly<Record<string, string>>;
  /** An argv, or one string for the shell. */
  readonly command: readonly string[] | string | null;
  readonly startsAt: WallMs | null;
  /** How long a batch may run, in milliseconds. */
  readonly timeoutMs: number | null;
  readonly preopenPorts: readonly number[];
  /** Paths inside the session at which folders are mounted; absent means none. */
  readonly mountPaths?: readonly string[];
  /** Whether a folder with a model is among the mounts. */
  readonly hasModelFolder?: boolean;
  /** Containers of each session; 1 where absent. */
  readonly containers?: number;
};

export type AdmissionImage = {
  readonly reference: string;
  readonly arch: string | null;
  readonly needsHost: boolean;
  readonly minimum: Readonly<Record<string, number>>;
  readonly servicePorts: readonly ServicePort[];
};

/** What is true at the moment of asking; gathered in one transaction with the insert. */
export type AdmissionFacts = {
  readonly now: WallMs;
  readonly group: {
    readonly name: string;
    readonly active: boolean;
    readonly allowedTypes: readonly SessionType[];
  };
  /** Every registered node of the group, lost ones included. */
  readonly nodes: readonly NodeOffer[];
  readonly image: AdmissionImage;
  readonly policy: ResourcePolicy;
  /** What the owner has that has not ended. */
  readonly usage: {
    /** Sessions that have not ended, waiting ones included. */
    readonly sessions: number;
    readonly pendingSessions: number;
    /** The slots of all sessions that have not ended, waiting ones included. */
    readonly slots: ResourceSlots;
    readonly pendingSlots: ResourceSlots;
  };
  /** Names of the owner's sessions that have not ended. */
  readonly liveNames: ReadonlySet<string>;
  /** The rights of the person who asks, such as `session.priority`. */
  readonly rights: ReadonlySet<string>;
  /** What is given where nothing is stated: milli-cores and bytes. */
  readonly defaults: { readonly cpu: number; readonly mem: number; readonly shm: number };
};

/** One broken rule: a stable code, the field at fault, and a sentence with the limit or fact it met. */
export type Refusal = {
  readonly code: string;
  readonly field: string;
  readonly sentence: string;
  readonly details: ErrorDetails;
};

/** A value that was changed to what is possible. */
export type Adjusted = {
  /** A slot, `shm` or `priority`. */
  readonly what: string;
  readonly asked: number;
  readonly given: number;
  readonly sentence: string;
};

export type Admitted = {
  readonly ok: true;
  /** One entry per session; null where a random name is to be made. */
  readonly names: readonly (string | null)[];
  readonly slots: ResourceSlots;
  readonly shm: number;
  readonly priority: number;
  /** The longest run time by timeout and policy, for estimates and deadlines; null where there is none. */
  readonly lifetimeMs: number | null;
  /** What was raised to the image's minimum or otherwise adjusted, to be told to the person. */
  readonly adjusted: readonly Adjusted[];
};

export type Admission = Admitted | { readonly ok: false; readonly refusals: readonly Refusal[] };
