import type { Mounted } from "./handle.ts";

export type Match =
  | { readonly kind: "found"; readonly mounted: Mounted; readonly params: Readonly<Record<string, string>> }
  | { readonly kind: "wrong-method"; readonly allow: readonly string[] }
  | { readonly kind: "none" };

export type Router = { match(method: string, path: string): Match };

type Node = {
  readonly fixed: Map<string, Node>;
  readonly parameters: Map<string, Node>;
  readonly methods: Map<string, Mounted>;
};

const newNode = (): Node => ({ fixed: new Map(), parameters: new Map(), methods: new Map() });

function child(children: Map<string, Node>, key: string): Node {
  const found = children.get(key) ?? newNode();
  children.set(key, found);
  return found;
}

type Hit = { readonly node: Node; readonly params: Readonly<Record<string, string>> };

/** Every node that the path leads to; a fixed segment comes before a parameter. */
function find(node: Node, segments: readonly string[], params: Readonly<Record<string, string>>): Hit[] {
  const [segment, ...rest] = segments;
  if (segment === undefined) return node.methods.size > 0 ? [{ node, params }] : [];
  const fixed = node.fixed.get(segment);
  const hits = fixed === undefined ? [] : find(fixed, rest, params);
  if (segment === "") return hits;
  for (const [name, next] of node.parameters) hits.push(...find(next, rest, { ...params, [name]: segment }));
  return hits;
}

/** Finds the route of a path. Parameters come as they are in the path, still encoded. */
export function createRouter(mounted: readonly Mounted[]): Router {
  const root = newNode();
  for (const entry of mounted) {
    let node = root;
    for (const segment of entry.route.path.split("/").slice(1)) {
      const name = /^\{(\w+)\}$/.exec(segment)?.[1];
      node = name === undefined ? child(node.fixed, segment) : child(node.parameters, name);
    }
    const method = entry.route.method;
    if (node.methods.has(method)) throw new TypeError(`${method} ${entry.route.path} is mounted twice`);
    node.methods.set(method, entry);
  }

  return {
    match: (method, path) => {
      const hits = find(root, path.split("/").slice(1), {});
      // What answers GET answers HEAD too, without the body.
      const wanted = method === "HEAD" ? "GET" : method;
      for (const { node, params } of hits) {
        const found = node.methods.get(wanted);
        if (found !== undefined) return { kind: "found", mounted: found, params };
      }
      if (hits.length === 0) return { kind: "none" };
      const allow = new Set(hits.flatMap(({ node }) => [...node.methods.keys()]));
      if (allow.has("GET")) allow.add("HEAD");
      return { kind: "wrong-method", allow: [...allow].sort() };
    },
  };
}
