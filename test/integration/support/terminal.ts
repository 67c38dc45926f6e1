/** A program under a pseudo-terminal, as a person sits before it. */
export type TerminalProgram = {
  /** Waits until this text has been shown since the last `until`. */
  readonly until: (text: string) => Promise<void>;
  readonly type: (text: string) => void;
  readonly resize: (cols: number, rows: number) => void;
  readonly exited: Promise<number>;
  /** Everything shown so far. */
  readonly shown: () => string;
  readonly close: () => void;
};

const PATIENCE_MS = 60_000;

export function openTerminal(
  argv: readonly string[],
  options: { readonly env: Readonly<Record<string, string>>; readonly cols?: number; readonly rows?: number },
): TerminalProgram {
  const decoder = new TextDecoder();
  let all = "";
  let from = 0;
  let wake = () => {};
  const child = Bun.spawn([...argv], {
    env: { ...options.env },
    terminal: {
      cols: options.cols ?? 80,
      rows: options.rows ?? 24,
      data: (_, bytes) => {
        all += decoder.decode(bytes, { stream: true });
        wake();
      },
    },
  });
  const { terminal } = child;
  if (terminal === undefined) throw new Error("there is no pseudo-terminal");
  return {
    until: async (text) => {
      const found = Promise.withResolvers<void>();
      const look = () => {
        const at = all.indexOf(text, from);
        if (at < 0) return;
        from = at + text.length;
        found.resolve();
      };
      wake = look;
      look();
      const seen = () => JSON.stringify(all.slice(from));
      const late = setTimeout(() => found.reject(new Error(`no "${text}" in ${seen()}`)), PATIENCE_MS);
      await found.promise.finally(() => clearTimeout(late));
    },
    type: (text) => {
      terminal.write(text);
    },
    resize: (cols, rows) => terminal.resize(cols, rows),
    exited: child.exited,
    shown: () => all,
    close: () => terminal.close(),
  };
}
