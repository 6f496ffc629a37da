export const ONNX_TYPES: string[]
export function writeTestRepositories(directory: string): void
