import { randomUUID } from "node:crypto";
import type { Image } from "../../contract/images.ts";
import type { Clock } from "../../kit/clock.ts";
import { BerthError, messageOf } from "../../kit/errors.ts";
import { type AgentId, asId, type ImageId, isId, newId } from "../../kit/ids.ts";
import type { Logger } from "../../kit/log.ts";
import type { ImageInfo, ImageRemoved, PullProgress } from "../../wire/generated/berth.ts";
import type { AgentPort } from "../agents/ports.ts";
import type { EventLog } from "../events/log.ts";
import { pageOf, parseCursor } from "../http/cursor.ts";
import type { Db, Store, Tx } from "../store/store.ts";
import { CATALOGUE, HOST_REFERENCE } from "./catalogue.ts";
import { digestOf, type ImageNode, imageView, namesOf, readLabels } from "./image.ts";
import { type ImageLabels, parseImageLabels, type ServicePort } from "./labels.ts";
import { createPulls, type Pull } from "./pulls.ts";
import { canonicalReference } from "./reference.ts";
import * as repository from "./repository.ts";

export { minimumOf } from "./image.ts";
export type { ImageRow } from "./repository.ts";

export type ImageServiceDeps = {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly events: Pick<EventLog, "append">;
  readonly agents: AgentPort;
  /** Every registered node. */
  readonly nodes: (db: Db) => Promise<readonly ImageNode[]>;
  /** A node by id or name; throws `agent-not-found`. */
  readonly findNode: (db: Db, reference: string) => Promise<{ id: AgentId; name: string }>;
  readonly liveSessions: (db: Db, image: ImageId) => Promise<number>;
};

/** The ports of the apps inside an image. */
export function servicePortsOf(image: repository.ImageRow): readonly ServicePort[] {
  return parseImageLabels(readLabels(image.labels)).servicePorts;
}

export interface ImageService {
  /** Adds what the catalogue has and this installation never had. */
  seed(): Promise<void>;
  /** An image by id or reference. Throws `image-not-found`. */
  find(db: Db, reference: string): Promise<repository.ImageRow>;
  /** What the labels of an image say, also of one that was removed meanwhile. */
  labels(image: ImageId): Promise<ImageLabels>;
  list(query: {
    cursor?: string | undefined;
    limit: number;
    q?: string | undefined;
    pulled?: "true" | "false" | undefined;
  }): Promise<{ items: Image[]; next: string | null }>;
  get(reference: string): Promise<Image>;
  add(input: {
    reference: string;
    title?: string | undefined;
    description?: string | undefined;
  }): Promise<Image>;
  remove(reference: string, fromNodes: boolean): Promise<void>;
  pull(reference: string, agents: readonly string[] | undefined): Promise<Image>;
  cancelPull(reference: string): Promise<Image>;
  /** Everything that a node has. */
  onReport(agent: AgentId, images: readonly ImageInfo[]): Promise<void>;
  onProgress(agent: AgentId, progress: PullProgress): Promise<void>;
  onRemoved(agent: AgentId, removed: ImageRemoved): Promise<void>;
  /** The node's link ended: its pulls are not known any more. */
  onDisconnected(agent: AgentId): void;
}

const SCOPE = "images";

export function createImageService(deps: ImageServiceDeps): ImageService {
  const { store, clock, log, events, agents } = deps;
  const pulls = createPulls(clock);
  const lastReports = new Map<AgentId, string>();

  function notFound(reference: string): BerthError {
    const hint =
      reference === ""
        ? ""
        : ` Add it with: berth image add ${reference.length > 100 ? "REFERENCE" : reference}`;
    return new BerthError("image-not-found", `There is no image "${reference.slice(0, 200)}" here.${hint}`, {
      field: "image",
    });
  }

  async function find(db: Db, reference: string): Promise<repository.ImageRow> {
    const found =
      (await repository.findByReference(db, reference)) ??
      (isId(reference) ? await repository.findById(db, asId<ImageId>(reference)) : undefined);
    if (found !== undefined) return found;
    let canonical: string;
    try {
      canonical = canonicalReference(reference);
    } catch {
      throw notFound(reference);
    }
    const row = await repository.findByReference(db, canonical);
    if (row === undefined) throw notFound(reference);
    return row;
  }

  async function views(db: Db, rows: readonly repository.ImageRow[]): Promise<Image[]> {
    const nodes = new Map((await deps.nodes(db)).map((node) => [node.id, node]));
    const present =
      rows.length === 0
        ? []
        : await repository.nodesOf(
            db,
            rows.map((row) => row.id),
          );
    return rows.map((row) =>
      imageView(
        row,
        nodes,
        present.filter((entry) => entry.image_id === row.id),
        pulls.of(row.id),
      ),
    );
  }

  async function view(db: Db, row: repository.ImageRow): Promise<Image> {
    const [image] = await views(db, [row]);
    if (image === undefined) throw notFound(row.reference);
    return image;
  }

  const get = (reference: string) => store.read(async (db) => view(db, await find(db, reference)));

  function tell(tx: Tx, row: { id: ImageId; reference: string }, change: string): Promise<void> {
    const data = { reference: row.reference, change };
    return events.append(tx, { kind: "image.updated", subject: row.id, ownerId: null, everyone: true, data });
  }

  function tellPull(pull: Pull, more: { finished: boolean }): Promise<void> {
    const { image, agent, state, phase, doneBytes, totalBytes, message } = pull;
    const data = { agent, state, phase, doneBytes, totalBytes, message, ...more };
    return store.write((tx) =>
      events.append(tx, { kind: "image.pull", subject: image, ownerId: null, data }),
    );
  }

  /** What a node says of an image, where it differs from what is stored. */
  async function learn(tx: Tx, row: repository.ImageRow, info: ImageInfo): Promise<void> {
    const digest = digestOf(info);
    const labels = JSON.stringify(info.labels);
    const arch = info.arch === "" ? null : info.arch;
    const same =
      row.size_bytes === info.sizeBytes &&
      row.arch === arch &&
      row.digest === digest &&
      row.labels === labels;
    if (same) return;
    await repository.update(tx, row.id, { size_bytes: info.sizeBytes, arch, digest, labels });
    for (const warning of parseImageLabels(info.labels).warnings) {
      log.warn({ image: row.reference, warning }, "a label of an image was not understood");
    }
    await tell(tx, row, "updated");
  }

  async function onReport(agent: AgentId, images: readonly ImageInfo[]): Promise<void> {
    const signature = JSON.stringify(images.map((info) => [info.id, info.references, info.digests]));
    if (lastReports.get(agent) === signature) return;
    await store.write(async (tx) => {
      const byName = new Map((await repository.kept(tx)).map((row) => [row.reference, row]));
      const rows = new Map<ImageId, repository.ImageNodeRow>();
      for (const info of images) {
        for (const name of namesOf(info)) {
          const row = byName.get(name);
          if (row === undefined) continue;
          await learn(tx, row, info);
          const entry = {
            image_id: row.id,
            agent_id: agent,
            digest: digestOf(info),
            size_bytes: info.sizeBytes,
          };
          rows.set(row.id, entry);
        }
      }
      await repository.setNode(tx, agent, [...rows.values()]);
    });
    lastReports.set(agent, signature);
  }

  async function onProgress(agent: AgentId, progress: PullProgress): Promise<void> {
    const pull = pulls.find(progress.pullId);
    if (pull?.agent !== agent) return;
    const { phase, doneBytes, totalBytes, finished, failure } = progress;
    if (failure !== undefined) {
      const failed = { state: "failed" as const, phase: "failed", message: failure.message };
      pulls.update(pull.pullId, failed);
      return tellPull({ ...pull, ...failed }, { finished: true });
    }
    const due = pulls.update(pull.pullId, { phase, doneBytes, totalBytes });
    if (!finished)
      return due ? tellPull({ ...pull, phase, doneBytes, totalBytes }, { finished: false }) : undefined;
    const { image: info } = progress;
    if (info !== undefined) {
      await store.write(async (tx) => {
        const row = await repository.findAny(tx, pull.image);
        if (row === undefined) return;
        await learn(tx, row, info);
        const entry = {
          image_id: row.id,
          agent_id: agent,
          digest: digestOf(info),
          size_bytes: info.sizeBytes,
        };
        await repository.addNode(tx, entry);
      });
      lastReports.delete(agent);
    }
    pulls.end(pull.pullId);
    await tellPull({ ...pull, phase: "done", doneBytes, totalBytes }, { finished: true });
  }

  async function startPull(row: repository.ImageRow, agent: { id: AgentId; name: string }): Promise<void> {
    if (pulls.underWay(row.id, agent.id) !== undefined) return;
    const pullId = randomUUID();
    pulls.start({ pullId, image: row.id, agent: agent.id });
    try {
      await agents.send(agent.id, { $case: "pullImage", value: { pullId, reference: row.reference } });
    } catch (err) {
      pulls.update(pullId, { state: "failed", phase: "failed", message: messageOf(err) });
    }
  }

  return {
    find,
    get,
    onReport,
    onProgress,
    seed: () =>
      store.write(async (tx) => {
        const known = await repository.catalogueReferences(tx);
        const now = clock.wall();
        for (const [at, entry] of CATALOGUE.entries()) {
          if (known.has(entry.reference)) continue;
          const taken = await repository.findByReference(tx, entry.reference);
          if (taken !== undefined) continue;
          await repository.insert(tx, {
            id: newId<ImageId>(clock),
            ...entry,
            catalogue: 1,
            size_bytes: null,
            arch: null,
            digest: null,
            labels: "{}",
            // A millisecond apart, so that the list keeps the order of the catalogue.
            created_at: now + at,
            removed_at: null,
          });
        }
      }),
    labels: (image) =>
      store.read(async (db) => {
        const row = await repository.findAny(db, image);
        return parseImageLabels(row === undefined ? {} : readLabels(row.labels));
      }),
    list: ({ cursor, limit, q, pulled }) =>
      store.read(async (db) => {
        const [at, id] = cursor === undefined ? [null, null] : parseCursor(SCOPE, cursor, 2);
        const after = at === null ? null : ([Number(at), String(id)] as const);
        const filter = { q, pulled: pulled === undefined ? undefined : pulled === "true" };
        const rows = await repository.list(db, filter, { after, limit: limit + 1 });
        const images = await views(db, rows.slice(0, limit));
        const { next } = pageOf(
          rows,
          limit,
          SCOPE,
          (row) => [row.created_at, row.id],
          () => null,
        );
        return { items: images, next };
      }),
    add: async ({ reference, title, description }) => {
      const canonical = canonicalReference(reference);
      await store.write(async (tx) => {
        if ((await repository.findByReference(tx, canonical)) !== undefined) {
          throw new BerthError("name-in-use", `The image ${canonical} is in the list already.`, {
            field: "reference",
          });
        }
        const id = newId<ImageId>(clock);
        await repository.insert(tx, {
          id,
          reference: canonical,
          title: title ?? reference,
          description: description ?? "",
          kind: "oci",
          catalogue: 0,
          size_bytes: null,
          arch: null,
          digest: null,
          labels: "{}",
          created_at: clock.wall(),
          removed_at: null,
        });
        await tell(tx, { id, reference: canonical }, "added");
      });
      // A node may have it already: the next report of each says so.
      lastReports.clear();
      for (const node of await store.read((db) => deps.nodes(db))) {
        if (agents.ready(node.id))
          await agents.send(node.id, { $case: "requestReport", value: {} }).catch(() => {});
      }
      return get(canonical);
    },
    remove: async (reference, fromNodes) => {
      const { row, nodes } = await store.write(async (tx) => {
        const image = await find(tx, reference);
        const refuse = (why: string) => {
          throw new BerthError("in-use", `The image ${image.reference} cannot be removed: ${why}`);
        };
        if (image.reference === HOST_REFERENCE) refuse("it is built in.");
        const live = await deps.liveSessions(tx, image.id);
        if (live > 0) refuse(`${live} session(s) that have not ended use it.`);
        const where = await repository.nodesOf(tx, [image.id]);
        await repository.update(tx, image.id, { removed_at: clock.wall() });
        await tell(tx, image, "removed");
        return { row: image, nodes: where };
      });
      if (!fromNodes) return;
      for (const { agent_id } of nodes) {
        const value = { reference: row.reference };
        await agents.send(agent_id, { $case: "removeImage", value }).catch((err: unknown) => {
          log.warn({ err, agent: agent_id, image: row.reference }, "an image stays on a node that is away");
        });
      }
    },
    pull: async (reference, wanted) => {
      const { row, targets } = await store.read(async (db) => {
        const image = await find(db, reference);
        if (image.kind === "host") {
          throw new BerthError("invalid-request", "The host environment is built in and needs no pull.", {
            field: "image",
          });
        }
        const all = wanted ?? (await deps.nodes(db)).filter((n) => agents.ready(n.id)).map((n) => n.id);
        const found: { id: AgentId; name: string }[] = [];
        for (const name of all) found.push(await deps.findNode(db, name));
        return { row: image, targets: found };
      });
      const away = targets.find((node) => !agents.ready(node.id));
      if (targets.length === 0 || away !== undefined) {
        const what = away === undefined ? "No node is connected" : `The node ${away.name} is not connected`;
        throw new BerthError(
          "agent-unreachable",
          `${what}, so nothing can be pulled. Try again when it is back.`,
        );
      }
      for (const target of targets) await startPull(row, target);
      return get(row.reference);
    },
    cancelPull: async (reference) => {
      const row = await store.read((db) => find(db, reference));
      for (const { pullId, agent, state } of pulls.of(row.id)) {
        if (state === "pulling")
          await agents.send(agent, { $case: "cancelPull", value: { pullId } }).catch(() => {});
        pulls.end(pullId);
      }
      return get(row.reference);
    },
    onRemoved: async (agent, { reference, failure }) => {
      if (failure !== undefined) {
        log.warn({ agent, reference, failure: failure.message }, "an image could not be removed from a node");
        return;
      }
      lastReports.delete(agent);
      await agents.send(agent, { $case: "requestReport", value: {} }).catch(() => {});
    },
    onDisconnected: (agent) => {
      lastReports.delete(agent);
      pulls.endOf(agent);
    },
  };
}
