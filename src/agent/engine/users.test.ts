import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { mergeAccounts } from "./users.ts";

const user = { uid: 1000, gid: 1000, supplementaryGids: [], shell: "/bin/sh" };
const lines = (text: string) => text.trimEnd().split("\n");

describe("mergeAccounts", () => {
  test("adds work to an image without accounts", () => {
    expect(mergeAccounts({ passwd: "", group: "" }, user)).toEqual({
      passwd: "work:x:1000:1000::/home/work:/bin/sh\n",
      group: "work:x:1000:\n",
    });
  });

  test("renumbers an account that holds the number and keeps its groups", () => {
    const passwd = "root:x:0:0:root:/root:/bin/bash\njovyan:x:1000:100::/home/jovyan:/bin/bash\n";
    const group = "root:x:0:\nusers:x:100:\nvideo:x:44:jovyan\n";
    const merged = mergeAccounts({ passwd, group }, user);
    expect(lines(merged.passwd)).toEqual([
      "root:x:0:0:root:/root:/bin/bash",
      "jovyan:x:50000:100::/home/jovyan:/bin/bash",
      "work:x:1000:1000::/home/work:/bin/bash",
    ]);
    expect(lines(merged.group)).toEqual([
      "root:x:0:",
      "users:x:100:work",
      "video:x:44:jovyan,work",
      "work:x:1000:",
    ]);
  });

  test("gives an account work of the image the asked numbers", () => {
    const merged = mergeAccounts(
      { passwd: "work:x:1001:1001:W:/home/w:/usr/bin/zsh\n", group: "work:x:1001:\ndocker:x:5:work\n" },
      user,
    );
    expect(merged.passwd).toBe("work:x:1000:1000::/home/work:/usr/bin/zsh\n");
    expect(merged.group).toBe("work:x:1000:\ndocker:x:5:work\n");
  });

  test("never makes the user a member of root's group by inheritance", () => {
    const merged = mergeAccounts({ passwd: "app:x:1000:0::/app:/bin/sh\n", group: "root:x:0:\n" }, user);
    expect(merged.group).toBe("root:x:0:\nwork:x:1000:\n");
  });

  test("names supplementary groups that the image does not know", () => {
    const merged = mergeAccounts(
      { passwd: "", group: "lab:x:2000:kim\n" },
      { ...user, supplementaryGids: [2000, 3000, 1000] },
    );
    expect(merged.group).toBe("lab:x:2000:kim,work\nwork:x:1000:\ng3000:x:3000:work\n");
  });

  test("leaves root alone", () => {
    const files = { passwd: "root:x:0:0::/root:/bin/sh\n", group: "root:x:0:\n" };
    expect(mergeAccounts(files, { ...user, uid: 0, gid: 0 })).toEqual(files);
  });

  test("keeps every other name, and numbers stay unique", () => {
    const account = fc.record({
      name: fc.constantFrom("root", "daemon", "work", "jovyan", "ubuntu", "app"),
      uid: fc.constantFrom(0, 1, 100, 999, 1000, 1001, 50_000),
      gid: fc.constantFrom(0, 1, 100, 1000),
    });
    const images = fc
      .uniqueArray(account, { selector: (a) => a.name })
      .filter((all) => new Set(all.map((a) => a.uid)).size === all.length);
    fc.assert(
      fc.property(images, fc.constantFrom(1, 999, 1000, 1001, 50_000), (accounts, uid) => {
        const passwd = accounts.map((a) => `${a.name}:x:${a.uid}:${a.gid}::/h:/bin/sh\n`).join("");
        const merged = lines(mergeAccounts({ passwd, group: "" }, { ...user, uid }).passwd).map((l) =>
          l.split(":"),
        );
        const names = merged.map((l) => l[0]);
        expect(new Set(merged.map((l) => l[2])).size).toBe(merged.length);
        expect(names.filter((n) => n !== "work").sort()).toEqual(
          accounts
            .map((a) => a.name)
            .filter((n) => n !== "work")
            .sort(),
        );
        expect(merged.filter((l) => l[0] === "work").map((l) => l[2])).toEqual([String(uid)]);
      }),
    );
  });
});
