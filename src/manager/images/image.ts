import { z } from "zod";
import type { Image } from "../../contract/images.ts";
import type { AgentId } from "../../kit/ids.ts";
import type { ImageInfo } from "../../wire/generated/berth.ts";
import { parseImageLabels } from "./labels.ts";
import type { Pull } from "./pulls.ts";
import { canonicalReference } from "./reference.ts";
import type { ImageNodeRow, ImageRow } from "./repository.ts";

const labelMap = z.record(z.string(), z.string());

export function readLabels(text: string): Readonly<Record<string, string>> {
  return labelMap.parse(JSON.parse(text));
}

/** The least that a session of the built-in image needs. */
const HOST_MINIMUM = { cpu: 100, mem: 32 * 1024 * 1024 };

/** The least that a session of the image needs, by slot. */
export function minimumOf(row: Pick<ImageRow, "kind" | "labels">): Readonly<Record<string, number>> {
  return row.kind === "host" ? HOST_MINIMUM : parseImageLabels(readLabels(row.labels)).minimum;
}

/** A node as images show it. */
export type ImageNode = { readonly id: AgentId; readonly name: string; readonly hostEnvironment: boolean };

/** The digest of an image as its registry names it, without the repository; null where it was not pulled. */
export function digestOf(info: ImageInfo): string | null {
  return info.digests.map((digest) => digest.slice(digest.indexOf("@") + 1)).find((d) => d !== "") ?? null;
}

/** Canonical spellings of what an image is called on a node; names that are none are left out. */
export function namesOf(info: ImageInfo): readonly string[] {
  return [...info.references, ...info.digests].flatMap((name) => {
    try {
      return [canonicalReference(name)];
    } catch {
      return [];
    }
  });
}

function nodesOf(
  row: ImageRow,
  nodes: ReadonlyMap<AgentId, ImageNode>,
  present: readonly ImageNodeRow[],
  pulls: readonly Pull[],
): Image["nodes"] {
  const there = { state: "present" as const, phase: null, message: null };
  const has =
    row.kind === "host"
      ? [...nodes.values()]
          .filter((node) => node.hostEnvironment)
          .map((node) => ({ agent: node.id, bytes: 0 }))
      : present.map((entry) => ({ agent: entry.agent_id, bytes: entry.size_bytes }));
  const pulled = has.flatMap(({ agent, bytes }) => {
    const name = nodes.get(agent)?.name;
    if (name === undefined || pulls.some((pull) => pull.agent === agent && pull.state === "pulling"))
      return [];
    return [{ agent: name, ...there, doneBytes: bytes, totalBytes: bytes }];
  });
  const pulling = pulls.flatMap((pull) => {
    const name = nodes.get(pull.agent)?.name;
    if (name === undefined) return [];
    const { state, phase, doneBytes, totalBytes, message } = pull;
    return [{ agent: name, state, phase, doneBytes, totalBytes, message }];
  });
  return [...pulled, ...pulling].sort((a, b) => (a.agent < b.agent ? -1 : 1));
}

export function imageView(
  row: ImageRow,
  nodes: ReadonlyMap<AgentId, ImageNode>,
  present: readonly ImageNodeRow[],
  pulls: readonly Pull[],
): Image {
  const labels = readLabels(row.labels);
  const where = nodesOf(row, nodes, present, pulls);
  return {
    id: row.id,
    reference: row.reference,
    title: row.title,
    description: row.description,
    kind: row.kind,
    catalogue: row.catalogue === 1,
    sizeBytes: row.size_bytes,
    arch: row.arch,
    digest: row.digest,
    minimum: { cpu: 0, mem: 0, ...minimumOf(row) },
    servicePorts: parseImageLabels(labels).servicePorts.map((port) => ({ ...port, ports: [...port.ports] })),
    labels: { ...labels },
    pulled: where.some((node) => node.state === "present"),
    nodes: where,
    createdAt: new Date(row.created_at).toISOString(),
  };
}
