import { z } from "zod";
import { id, nodeSlots, page, pageQuery, timestamp } from "./primitives.ts";
import { defineRoute, needs } from "./route.ts";

export const servicePort = z.object({
  name: z.string(),
  protocol: z.enum(["tcp", "http", "preopen", "vnc", "rdp"]),
  ports: z.array(z.int()),
});

export const image = z.object({
  id,
  /** Canonical reference with registry and tag, or `host`. */
  reference: z.string(),
  title: z.string(),
  description: z.string(),
  kind: z.enum(["host", "oci"]),
  /** Comes with Berth and is no one's addition. */
  catalogue: z.boolean(),
  /** Known only after a first pull. */
  sizeBytes: z.int().nullable(),
  arch: z.string().nullable(),
  digest: z.string().nullable(),
  minimum: nodeSlots,
  servicePorts: z.array(servicePort),
  labels: z.record(z.string(), z.string()),
  /** Whether any node has it; `host` is on every node that offers it. */
  pulled: z.boolean(),
  nodes: z.array(
    z.object({
      agent: z.string(),
      state: z.enum(["present", "pulling", "failed"]),
      phase: z.string().nullable(),
      doneBytes: z.int(),
      totalBytes: z.int(),
      message: z.string().nullable(),
    }),
  ),
  createdAt: timestamp,
});
export type Image = z.infer<typeof image>;

const imageParam = z.object({
  image: z.string().max(512).meta({ description: "Image id, or reference (percent-encoded)" }),
});

export const imageRoutes = {
  list: defineRoute({
    id: "images.list",
    method: "GET",
    path: "/api/v1/images",
    tag: "Images",
    summary: "List images",
    access: needs("image.read"),
    query: z.strictObject({
      ...pageQuery,
      q: z.string().max(200).optional(),
      pulled: z.enum(["true", "false"]).optional(),
    }),
    answer: { kind: "json", status: 200, schema: page(image) },
  }),
  add: defineRoute({
    id: "images.add",
    method: "POST",
    path: "/api/v1/images",
    tag: "Images",
    summary: "Add an image by its reference; nothing is downloaded yet",
    access: needs("image.write"),
    body: z.strictObject({
      reference: z.string().min(1).max(512),
      title: z.string().max(100).optional(),
      description: z.string().max(1000).optional(),
    }),
    answer: { kind: "json", status: 201, schema: image },
    idempotent: true,
    errors: ["invalid-image-reference", "name-in-use"],
  }),
  get: defineRoute({
    id: "images.get",
    method: "GET",
    path: "/api/v1/images/{image}",
    tag: "Images",
    summary: "Show an image",
    access: needs("image.read"),
    params: imageParam,
    answer: { kind: "json", status: 200, schema: image },
  }),
  remove: defineRoute({
    id: "images.remove",
    method: "DELETE",
    path: "/api/v1/images/{image}",
    tag: "Images",
    summary: "Remove an image from the list and, with `nodes=true`, from the nodes",
    access: needs("image.write"),
    params: imageParam,
    query: z.strictObject({ nodes: z.enum(["true", "false"]).default("false") }),
    answer: { kind: "empty", status: 204 },
    errors: ["in-use"],
  }),
  pull: defineRoute({
    id: "images.pull",
    method: "POST",
    path: "/api/v1/images/{image}/pull",
    tag: "Images",
    summary:
      "Pull an image on chosen nodes (all ready ones by default); progress comes as `image.pull` events and in `nodes`",
    access: needs("image.write"),
    params: imageParam,
    body: z.strictObject({ agents: z.array(z.string().max(100)).max(200).optional() }),
    answer: { kind: "json", status: 202, schema: image },
  }),
  cancelPull: defineRoute({
    id: "images.cancel-pull",
    method: "DELETE",
    path: "/api/v1/images/{image}/pull",
    tag: "Images",
    summary: "Cancel pulls of an image that are under way",
    access: needs("image.write"),
    params: imageParam,
    answer: { kind: "json", status: 202, schema: image },
  }),
};
