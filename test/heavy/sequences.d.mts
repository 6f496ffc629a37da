export declare function inOrder(
  directory: string,
  asked: number,
  busyLoops: number,
): Promise<{ requests: number; wrong: string[] }>
