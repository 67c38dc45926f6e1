import { expect, test } from "bun:test";
import { bridgeName, checkRef, containerName, isOwn, ownershipLabels, refOfLabels } from "./names.ts";

const owner = {
  clusterId: "0190a000-0000-7000-8000-000000000001",
  agentId: "0190a000-0000-7000-8000-0000deadbeef",
};
const kernelId = "0190a000-0000-7000-8000-0000000000aa";

test("names carry the agent's distinguishing digits and fit the kernel's limits", () => {
  expect(containerName(owner, { kernelId, generation: 3 })).toBe(`berth-deadbeef-${kernelId}-g3`);
  expect(bridgeName(owner)).toBe("bth-deadbeef");
  expect(bridgeName(owner).length).toBeLessThanOrEqual(15);
});

test("labels of others are not ours, and labels without a kernel name none", () => {
  expect(isOwn(owner, ownershipLabels(owner))).toBe(true);
  expect(isOwn(owner, ownershipLabels({ ...owner, clusterId: "other" }))).toBe(false);
  expect(refOfLabels(ownershipLabels(owner))).toBeUndefined();
});

test("a reference that could leave its folder is refused", () => {
  expect(() => checkRef({ kernelId: "../../etc", generation: 1 })).toThrow("not the id of a kernel");
  expect(() => checkRef({ kernelId, generation: -1 })).toThrow("not the id of a kernel");
  expect(() => checkRef({ kernelId, generation: 0 })).not.toThrow();
});
