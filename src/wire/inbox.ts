/** What has arrived and was not read yet, for one reader, with a bound that stops the sender. */
export interface Inbox<T> {
  put(item: T): void;
  /** Puts an item back in front. */
  unread(item: T): void;
  /** No more will come; what is held can still be read. An error is thrown at the reader after that. */
  finish(how: "ended" | Error): void;
  next(): Promise<IteratorResult<T>>;
}

export type InboxOptions<T> = {
  readonly weigh: (item: T) => number;
  /** From this weight on the sender is paused; at half of it, it is resumed. */
  readonly limit: number;
  readonly pause: () => void;
  readonly resume: () => void;
};

export function createInbox<T>({ weigh, limit, pause, resume }: InboxOptions<T>): Inbox<T> {
  type Reader = { resolve(result: IteratorResult<T>): void; reject(error: Error): void };
  const queue: { item: T }[] = [];
  let held = 0;
  let paused = false;
  let over: "open" | "ended" | Error = "open";
  let reader: Reader | undefined;

  const takeReader = (): Reader | undefined => {
    const waiting = reader;
    reader = undefined;
    return waiting;
  };
  return {
    put: (item) => {
      const waiting = takeReader();
      if (waiting !== undefined) return waiting.resolve({ done: false, value: item });
      queue.push({ item });
      held += weigh(item);
      if (held < limit || paused) return;
      paused = true;
      pause();
    },
    unread: (item) => {
      queue.unshift({ item });
      held += weigh(item);
    },
    finish: (how) => {
      if (over === "open") over = how;
      const waiting = takeReader();
      if (over instanceof Error) waiting?.reject(over);
      else waiting?.resolve({ done: true, value: undefined });
    },
    next: () => {
      const first = queue.shift();
      if (first !== undefined) {
        held -= weigh(first.item);
        if (paused && held < limit / 2) {
          paused = false;
          resume();
        }
        return Promise.resolve({ done: false, value: first.item });
      }
      if (over === "ended") return Promise.resolve({ done: true, value: undefined });
      if (over instanceof Error) return Promise.reject(over);
      if (reader !== undefined) return Promise.reject(new Error("there is a reader already"));
      return new Promise((resolve, reject) => {
        reader = { resolve, reject };
      });
    },
  };
}
