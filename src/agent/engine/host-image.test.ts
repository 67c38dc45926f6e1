import { describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeTar } from "./archive.ts";
import { hostImageEntries, hostMounts, isHostImage, offersHost, usrLinks } from "./host-image.ts";
import { parseMountInfo } from "./mounts.ts";

describe("the node's layout", () => {
  const withRoot = (make: (root: string) => void, check: (root: string) => void) => {
    const root = mkdtempSync(join(tmpdir(), "berth-root-"));
    try {
      make(root);
      check(root);
    } finally {
      rmSync(root, { recursive: true });
    }
  };

  test("a merged /usr is offered", () => {
    withRoot(
      (root) => {
        mkdirSync(join(root, "usr/bin"), { recursive: true });
        writeFileSync(join(root, "usr/bin/sh"), "");
        symlinkSync("usr/bin", join(root, "bin"));
        symlinkSync("/usr/lib", join(root, "lib"));
        symlinkSync("elsewhere", join(root, "lib64"));
      },
      (root) => {
        expect(offersHost(root)).toBe(true);
        expect(usrLinks(root)).toEqual(["bin", "lib"]);
      },
    );
  });

  test("an unmerged one is not", () => {
    withRoot(
      (root) => {
        mkdirSync(join(root, "bin"));
        mkdirSync(join(root, "usr/bin"), { recursive: true });
        writeFileSync(join(root, "usr/bin/sh"), "");
      },
      (root) => expect(offersHost(root)).toBe(false),
    );
  });
});

describe("hostMounts", () => {
  const sources = (etc: string[], mountinfo = "") =>
    hostMounts(etc, parseMountInfo(mountinfo)).map(({ Source }) => Source);

  test("takes the node's programs and nothing of /etc that is not on the list", () => {
    const found = sources(["shadow", "passwd", "ssh", "sudoers", "machine-id", "docker", "alternatives"]);
    expect(found).toContain("/usr");
    expect(found).not.toContain("/etc/ssl/private");
    expect(found.filter((path) => /shadow|passwd|ssh|sudoers|machine-id|docker/.test(path))).toEqual([]);
  });

  test("every bind is read-only and without what is mounted below it", () => {
    for (const mount of hostMounts([], [])) {
      expect(mount).toMatchObject({ ReadOnly: true, BindOptions: { NonRecursive: true } });
    }
  });

  test("binds what is mounted below by itself, and refuses more than it can check", () => {
    expect(
      sources([], "1 2 0:1 / /usr/bin rw - ext4 /dev/x rw\n1 2 0:1 / /usrx rw - ext4 /dev/x rw"),
    ).toContain("/usr/bin");
    const many = Array.from({ length: 65 }, (_, i) => `1 2 0:1 / /opt/m${i} rw - tmpfs t rw`).join("\n");
    expect(() => sources([], many)).toThrow("65 file systems");
  });
});

test("an image of somebody else's is not taken for the built-in one by its label", () => {
  const Labels = { "berth.builtin": "host" };
  expect(isHostImage({ Labels, RepoTags: ["berth/host:0123"] })).toBe(true);
  expect(isHostImage({ Labels, RepoTags: ["<none>:<none>"], RepoDigests: ["<none>@<none>"] })).toBe(true);
  expect(isHostImage({ Labels, RepoTags: ["lab/python:3"] })).toBe(false);
  expect(isHostImage({ Labels, RepoTags: null, RepoDigests: ["lab/python@sha256:00"] })).toBe(false);
  expect(isHostImage({ Labels: null, RepoTags: ["berth/host:0123"] })).toBe(false);
});

test("the image is the same bytes each time, so that its name can be their hash", async () => {
  const once = await makeTar(hostImageEntries(["bin", "lib"]));
  expect(once.equals(await makeTar(hostImageEntries(["bin", "lib"])))).toBe(true);
  expect(once.equals(await makeTar(hostImageEntries(["bin"])))).toBe(false);
});

test("mount points with blanks are read as they are", () => {
  const [mount] = parseMountInfo(
    "36 35 98:0 / /mnt/my\\040disk rw,noatime shared:1 - ext3 /dev/root rw,errors=continue",
  );
  expect(mount).toEqual({ path: "/mnt/my disk", source: "/dev/root", fsType: "ext3" });
});
