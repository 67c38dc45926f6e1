import { z } from "zod";
import type { ResourceSlots } from "../../kit/slots.ts";
import type { ServicePort } from "../images/labels.ts";
import type { PhaseDeadlines } from "./state-machine.ts";

/** The JSON columns of a session, checked as they are read. */
const slots: z.ZodType<ResourceSlots> = z.object({ cpu: z.int(), mem: z.int() }).catchall(z.int());
const textMap = z.record(z.string(), z.string());
const texts = z.array(z.string());
const ports = z.array(z.int());
const command = z.union([z.array(z.string()), z.string()]);
const servicePorts: z.ZodType<readonly ServicePort[]> = z.array(
  z.object({
    name: z.string(),
    protocol: z.enum(["tcp", "http", "preopen", "vnc", "rdp"]),
    ports: z.array(z.int()),
  }),
);
const limit = z.int().nullable();
const deadlines: z.ZodType<PhaseDeadlines> = z.object({
  SCHEDULED: limit,
  PREPARING: limit,
  PULLING: limit,
  CREATING: limit,
  TERMINATING: limit,
});

function reader<T>(schema: z.ZodType<T>): (text: string) => T {
  return (text) => schema.parse(JSON.parse(text));
}

export const readSlots = reader(slots);
export const readTextMap = reader(textMap);
export const readTexts = reader(texts);
export const readPorts = reader(ports);
export const readCommand = reader(command);
export const readServicePorts = reader(servicePorts);
export const readDeadlines = reader(deadlines);
