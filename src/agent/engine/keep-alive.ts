import { chmod, mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { BerthError } from "../../kit/errors.ts";

/** Where the program is found inside a container. */
export const KEEP_ALIVE_PATH = "/.berth-keep-alive";

// pause(2) for ever; SIGTERM's default action ends it, since the engine's init is PID 1.
// biome-ignore format: one instruction per line
const X64_CODE = [
  0xb8, 0x22, 0x00, 0x00, 0x00, // mov $34, %eax
  0x0f, 0x05, // syscall
  0xeb, 0xf7, // jmp to the start
];

// arm64 has no pause: ppoll(NULL, 0, NULL, NULL) waits just as long.
const ARM64_CODE = [
  0xd2800000, 0xd2800001, 0xd2800002, 0xd2800003, 0xd2800928, 0xd4000001, 0x17fffffa,
].flatMap((word) => [word & 0xff, (word >>> 8) & 0xff, (word >>> 16) & 0xff, word >>> 24]);

const MACHINES: Readonly<Record<string, { readonly id: number; readonly code: readonly number[] }>> = {
  x64: { id: 62, code: X64_CODE },
  arm64: { id: 183, code: ARM64_CODE },
};

const HEADERS = 64 + 56;
const BASE = 0x400000;

/**
 * A whole program that does nothing until it is told to end. It is made here, byte by byte, because an image
 * need not contain a shell, `sleep` or a C library: this one needs nothing but the kernel.
 */
export function keepAliveProgram(arch: string): Uint8Array {
  const machine = MACHINES[arch];
  if (machine === undefined) {
    throw new BerthError("engine-refused", `Interactive sessions do not run on ${arch} processors yet.`);
  }
  const size = HEADERS + machine.code.length;
  const elf = new DataView(new ArrayBuffer(size));
  const u16 = (at: number, value: number) => elf.setUint16(at, value, true);
  const u32 = (at: number, value: number) => elf.setUint32(at, value, true);
  const u64 = (at: number, value: number) => elf.setBigUint64(at, BigInt(value), true);
  elf.setUint32(0, 0x7f454c46);
  elf.setUint32(4, 0x02010100); // 64 bit, little-endian, version 1, System V
  u16(16, 2); // an executable
  u16(18, machine.id);
  u32(20, 1);
  u64(24, BASE + HEADERS); // entry point
  u64(32, 64); // program headers
  u16(52, 64);
  u16(54, 56);
  u16(56, 1);
  u32(64, 1); // one segment to load
  u32(68, 5); // readable and executable
  u64(80, BASE);
  u64(88, BASE);
  u64(96, size);
  u64(104, size);
  u64(112, 0x1000);
  const bytes = new Uint8Array(elf.buffer);
  bytes.set(machine.code, HEADERS);
  return bytes;
}

/** Puts the program into `dir` and returns its path there. */
export async function installKeepAlive(dir: string, arch: string): Promise<string> {
  const path = join(dir, "keep-alive");
  const fresh = join(dir, `keep-alive.${process.pid}`);
  await mkdir(dir, { recursive: true, mode: 0o755 });
  await writeFile(fresh, keepAliveProgram(arch), { mode: 0o755 });
  await chmod(fresh, 0o755);
  await rename(fresh, path);
  return path;
}
