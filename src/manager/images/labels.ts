/** A port of an app inside an image, as its labels declare it. */
export type ServicePort = {
  readonly name: string;
  readonly protocol: "tcp" | "http" | "preopen" | "vnc" | "rdp";
  /** One port, or several of one service. */
  readonly ports: readonly number[];
};

export type ImageRole = "compute" | "inference" | "system";

/** What the `ai.backend.*` and `berth.*` labels of an image say. */
export type ImageLabels = {
  readonly role: ImageRole;
  /** The least that a session of the image needs, by slot: milli-cores, bytes, units. */
  readonly minimum: Readonly<Record<string, number>>;
  /** The most that a session of the image can use, by slot. */
  readonly maximum: Readonly<Record<string, number>>;
  readonly preferredShm: number | null;
  readonly servicePorts: readonly ServicePort[];
  readonly endpointPorts: readonly string[];
  /** Names of environment variables that are set to the number of cores. */
  readonly corecountNames: readonly string[];
  readonly features: readonly string[];
  readonly accelerators: readonly string[];
  readonly runtimeType: string | null;
  readonly runtimePath: string | null;
  readonly baseDistro: string | null;
  /** Labels that were not understood and therefore ignored, each with the reason. */
  readonly warnings: readonly string[];
};
