import { expect, test } from "bun:test";
import { createSemaphore } from "./semaphore.ts";

test("no more than the limit run at once, in the order they came, whatever fails", async () => {
  const semaphore = createSemaphore(2);
  const order: number[] = [];
  let running = 0;
  let most = 0;
  const gates = Array.from({ length: 6 }, () => Promise.withResolvers<void>());
  const tasks = gates.map((gate, index) =>
    semaphore
      .run(async () => {
        order.push(index);
        running += 1;
        most = Math.max(most, running);
        await gate.promise;
        running -= 1;
        if (index === 1) throw new Error("one fails");
      })
      .catch(() => {}),
  );
  for (const gate of gates) {
    gate.resolve();
    await new Promise(setImmediate);
  }
  await Promise.all(tasks);
  expect(most).toBe(2);
  expect(order).toEqual([0, 1, 2, 3, 4, 5]);
});

test("one that gives up while waiting leaves its place to the next", async () => {
  const semaphore = createSemaphore(1);
  const gate = Promise.withResolvers<void>();
  const first = semaphore.run(() => gate.promise);
  const abort = new AbortController();
  const second = semaphore.run(async () => "second", abort.signal);
  const third = semaphore.run(async () => "third");
  abort.abort(new Error("gave up"));
  await expect(second).rejects.toThrow("gave up");
  gate.resolve();
  await first;
  expect(await third).toBe("third");
});
