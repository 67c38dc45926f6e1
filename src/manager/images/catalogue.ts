/** An image that Berth knows from the start. Nothing of it is on a node until it is pulled. */
export type CatalogueEntry = {
  readonly reference: string;
  readonly title: string;
  readonly description: string;
  readonly kind: "host" | "oci";
};

/** The reference of the built-in environment. */
export const HOST_REFERENCE = "host";

/** The catalogue of a new installation, in the order in which it is shown. */
export const CATALOGUE: readonly CatalogueEntry[] = [
  {
    reference: HOST_REFERENCE,
    title: "Host environment",
    description: "The software that is installed on the node itself, read-only. Needs no download.",
    kind: "host",
  },
  {
    reference: "docker.io/library/python:3.13-slim",
    title: "Python 3.13",
    description: "Python on a small Debian, for scripts and batch jobs.",
    kind: "oci",
  },
  {
    reference: "quay.io/jupyter/minimal-notebook:latest",
    title: "Jupyter, minimal",
    description: "JupyterLab with Python and the usual command-line tools.",
    kind: "oci",
  },
  {
    reference: "quay.io/jupyter/pytorch-notebook:latest",
    title: "Jupyter with PyTorch",
    description: "JupyterLab with the scientific Python stack and PyTorch.",
    kind: "oci",
  },
  {
    reference: "docker.io/codercom/code-server:latest",
    title: "code-server",
    description: "Visual Studio Code in the browser.",
    kind: "oci",
  },
  {
    reference: "docker.io/rocker/rstudio:latest",
    title: "RStudio",
    description: "R with RStudio Server.",
    kind: "oci",
  },
  {
    reference: "docker.io/vllm/vllm-openai:latest",
    title: "vLLM",
    description: "Serves language models with an OpenAI-compatible API; needs a GPU.",
    kind: "oci",
  },
];
