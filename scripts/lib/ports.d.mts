export function freePorts(count: number): Promise<number[]>
export function listenFlags(ports: readonly number[]): string[]
