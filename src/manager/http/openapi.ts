import { z } from "zod";
import { problem } from "../../contract/errors.ts";
import type { Method, Route } from "../../contract/route.ts";
import { VERSION } from "../../kit/version.ts";

type Json = Readonly<Record<string, unknown>>;

function schemaOf(schema: z.ZodType, io: "input" | "output"): Json {
  const { $schema: _, ...json } = z.toJSONSchema(schema, {
    io,
    // Transforms and checks of ours have no form in JSON Schema; their texts say what they take.
    unrepresentable: "any",
    target: "draft-2020-12",
  });
  return json;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parametersOf(schema: z.ZodType | undefined, where: "path" | "query"): Json[] {
  if (schema === undefined) return [];
  const json = schemaOf(schema, "input");
  const required = Array.isArray(json.required) ? json.required : [];
  return Object.entries(isObject(json.properties) ? json.properties : {}).map(([name, property]) => {
    const { description, ...rest } = isObject(property) ? property : {};
    return {
      name,
      in: where,
      required: where === "path" || required.includes(name),
      ...(description === undefined ? {} : { description }),
      schema: rest,
    };
  });
}

const content = (type: string, schema: Json) => ({ content: { [type]: { schema } } });

function successOf({ answer }: Route): Json {
  switch (answer.kind) {
    case "json":
      return {
        [answer.status]: {
          description: "Done",
          ...content("application/json", schemaOf(answer.schema, "output")),
        },
      };
    case "empty":
      return { [answer.status]: { description: "Done" } };
    case "stream":
      return { 200: { description: answer.description, ...content(answer.contentType, { type: "string" }) } };
    case "websocket":
      return { 101: { description: `WebSocket: ${answer.description}` } };
  }
}

const IDEMPOTENCY_KEY: Json = {
  name: "Idempotency-Key",
  in: "header",
  required: false,
  description: "The same request with the same key within a day is carried out once; its answer is repeated.",
  schema: { type: "string", minLength: 1, maxLength: 200 },
};

function noteOf({ access, errors = [], description }: Route): string {
  const right =
    access.kind === "permission"
      ? `Needs the right \`${access.permission}\`.`
      : access.kind === "signed-in"
        ? "Needs a sign-in."
        : "Open to everybody.";
  const codes =
    errors.length > 0 ? `Error codes of its own: ${errors.map((code) => `\`${code}\``).join(", ")}.` : "";
  return [description, right, codes].filter((text) => text !== undefined && text !== "").join("\n\n");
}

function operationOf(route: Route): Json {
  const parameters = [
    ...parametersOf(route.params, "path"),
    ...parametersOf(route.query, "query"),
    ...(route.idempotent === true ? [IDEMPOTENCY_KEY] : []),
  ];
  return {
    operationId: route.id,
    tags: [route.tag],
    summary: route.summary,
    description: noteOf(route),
    ...(parameters.length > 0 ? { parameters } : {}),
    ...(route.body === undefined
      ? {}
      : { requestBody: { required: true, ...content("application/json", schemaOf(route.body, "input")) } }),
    responses: {
      ...successOf(route),
      default: {
        description: "Refused or failed",
        ...content("application/problem+json", { $ref: "#/components/schemas/Problem" }),
      },
    },
    security: route.access.kind === "public" ? [] : [{ bearer: [] }, { cookie: [] }],
  };
}

const methodKey = (method: Method) => method.toLowerCase();

/** The API as OpenAPI 3.1, made from the contract alone. */
export function openApi(routes: readonly Route[]): Json {
  const paths: Record<string, Record<string, Json>> = {};
  for (const route of routes) {
    const item = paths[route.path] ?? {};
    item[methodKey(route.method)] = operationOf(route);
    paths[route.path] = item;
  }
  return {
    openapi: "3.1.0",
    info: {
      title: "Berth",
      version: VERSION,
      description:
        "Sessions, images, nodes and accounts of a Berth cluster. Errors are problem+json (RFC 9457).",
      license: { name: "Apache-2.0", identifier: "Apache-2.0" },
    },
    servers: [{ url: "/" }],
    tags: [...new Set(routes.map((route) => route.tag))].map((name) => ({ name })),
    paths,
    components: {
      schemas: { Problem: schemaOf(problem, "output") },
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "An API token: berth token create" },
        cookie: { type: "apiKey", in: "cookie", name: "berth_session" },
      },
    },
  };
}
