import { expect, test } from "bun:test";
import { checkUpConfig } from "./up.ts";

test("config check up tells the keys of both parts and refuses what cannot be", async () => {
  const { value, sources } = await checkUpConfig([
    "--scratch-mode",
    "directory",
    "--listen",
    "127.0.0.1:8000",
  ]);
  expect(value).toMatchObject({ scratchMode: "directory", listen: { host: "127.0.0.1", port: 8000 } });
  expect(sources).toMatchObject({ scratchMode: "flag --scratch-mode", agentHeartbeat: "default" });
  await expect(checkUpConfig(["--listen", "127.0.0.1:65535"])).rejects.toThrow("give agent-listen");
  await expect(checkUpConfig(["--tls-cert", "/nonexistent", "--tls-key", "/nonexistent"])).rejects.toThrow(
    "/nonexistent cannot be read",
  );
});
