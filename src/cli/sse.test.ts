import { expect, test } from "bun:test";
import fc from "fast-check";
import { createSseReader } from "./sse.ts";

test("messages come out the same however the bytes are cut", () => {
  const text =
    ': hello\n\nid: 7\nevent: session.status\ndata: {"a":1}\n\ndata: 한\ndata: b\r\n\r\n' +
    ": beat\n\nid:9\ndata:x\n\n";
  const bytes = Buffer.from(text);
  fc.assert(
    fc.property(fc.array(fc.nat(bytes.length)), (cuts) => {
      const read = createSseReader();
      const edges = [0, ...cuts.sort((a, b) => a - b), bytes.length];
      const got = edges.flatMap((edge, index) => read(bytes.subarray(edges[index - 1] ?? 0, edge)));
      expect(got).toEqual([
        { id: "7", event: "session.status", data: '{"a":1}' },
        { id: "7", event: "message", data: "한\nb" },
        { id: "9", event: "message", data: "x" },
      ]);
    }),
  );
});
