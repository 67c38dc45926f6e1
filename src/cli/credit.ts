/** Counts the bytes that the other side has room for. */
export function createCredit() {
  let left = 0;
  let wake: (() => void) | undefined;
  return {
    /** The other side has room for so many more bytes. */
    grant: (bytes: number): void => {
      left += bytes;
      wake?.();
      wake = undefined;
    },
    /** Takes 1 to `most` bytes of the room, waiting while there is none. For one caller at a time. */
    take: async (most: number): Promise<number> => {
      while (left === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
      const taken = Math.min(left, most);
      left -= taken;
      return taken;
    },
  };
}
