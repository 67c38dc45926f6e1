import { rm } from "node:fs/promises";
import { createConnection, createServer, type Server, type Socket } from "node:net";

export type CuttableSocket = {
  readonly path: string;
  /** Ends every connection and listens no more, as an engine that is stopped. */
  cut(): Promise<void>;
  /** Listens again. */
  restore(): Promise<void>;
};

/** A socket that leads to another one and can be cut: an engine that goes away without stopping the real one. */
export async function cuttableSocket(path: string, target: string): Promise<CuttableSocket> {
  const open = new Set<Socket>();
  let server: Server | undefined;

  const join = (from: Socket, to: Socket): void => {
    open.add(from);
    from.on("data", (bytes) => {
      if (!to.write(bytes)) {
        from.pause();
        to.once("drain", () => from.resume());
      }
    });
    from.on("end", () => to.end());
    from.on("error", () => to.destroy());
    from.on("close", () => {
      open.delete(from);
      to.destroy();
    });
  };

  async function restore(): Promise<void> {
    await rm(path, { force: true });
    server = createServer({ allowHalfOpen: true }, (near) => {
      const far = createConnection({ path: target, allowHalfOpen: true });
      join(near, far);
      join(far, near);
    });
    await new Promise<void>((resolve) => server?.listen(path, resolve));
  }

  await restore();
  return {
    path,
    restore,
    cut: async () => {
      const closed = new Promise<void>((resolve) => server?.close(() => resolve()));
      for (const socket of open) socket.destroy();
      await closed;
      await rm(path, { force: true });
    },
  };
}
