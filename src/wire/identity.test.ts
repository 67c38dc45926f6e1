import { expect, test } from "bun:test";
import fc from "fast-check";
import { type AgentId, asId, type ClusterId } from "../kit/ids.ts";
import { formatIdentity, type Identity, parseIdentity } from "./identity.ts";

const C = "0190b5a0-0000-7000-8000-000000000001";
const A = "0190b5a0-0000-7000-8000-000000000002";

test("an identity survives its URI", () => {
  const uuid = fc.uuid().map((text) => text.toLowerCase());
  const identities: fc.Arbitrary<Identity> = fc.oneof(
    uuid.map((c) => ({ role: "manager" as const, clusterId: asId<ClusterId>(c) })),
    fc.tuple(uuid, uuid).map(([c, a]) => ({
      role: "agent" as const,
      clusterId: asId<ClusterId>(c),
      agentId: asId<AgentId>(a),
    })),
  );
  fc.assert(fc.property(identities, (id) => expect(parseIdentity(formatIdentity(id))).toEqual(id)));
});

test.each([
  "",
  "https://example.org/manager",
  `berth://${C}`,
  `berth://${C}/`,
  `berth://${C}/manager/`,
  `berth://${C}/manager/${A}`,
  `berth://${C}/Manager`,
  `berth://${C.toUpperCase()}/manager`.replace("0190b5a0", "0190B5A0"),
  `berth://${C}/agent`,
  `berth://${C}/agent/`,
  `berth://${C}/agent/${A}/x`,
  `berth://${C}/agent/${A}?x`,
  `berth://${C}/agent/${A}\n`,
  `berth://${C}/admin/${A}`,
  `berth:///agent/${A}`,
  ` berth://${C}/manager`,
])("refuses %j", (uri) => {
  expect(() => parseIdentity(uri)).toThrow(expect.objectContaining({ code: "bad-identity" }));
});
