/**
 * CPU and memory of the host from `/proc` (Linux): of the whole host, not of this process or container.
 *
 * Sampled by a scrape after the interval has passed, not by a timer: a server that is not scraped does nothing.
 */

import { readFileSync } from 'node:fs'

export interface HostSample {
  /** Share of the CPUs in use since the previous sample, 0 to 1. */
  utilization: number
  memoryTotalBytes: number
  memoryUsedBytes: number
}

export interface CpuTimes {
  busy: number
  total: number
}

/** Jiffies of all CPUs: idle and iowait are not busy; guest time is already part of user time. */
export function parseCpuTimes(stat: string): CpuTimes | null {
  const line = /^cpu +(.*)$/m.exec(stat)?.[1]
  if (line === undefined) return null
  const fields = line.split(/ +/).map(Number)
  const [user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0] = fields
  const busy = user + nice + system + irq + softirq + steal
  return { busy, total: busy + idle + iowait }
}

/** Total and used (total minus available) bytes. */
export function parseMemory(meminfo: string): { totalBytes: number; usedBytes: number } | null {
  const total = /^MemTotal: +(\d+) kB$/m.exec(meminfo)?.[1]
  const available = /^MemAvailable: +(\d+) kB$/m.exec(meminfo)?.[1]
  if (total === undefined || available === undefined) return null
  const totalBytes = Number(total) * 1024
  return { totalBytes, usedBytes: totalBytes - Number(available) * 1024 }
}

/** Samples the host at most once per interval. */
export class HostSampler {
  readonly #intervalMs: number
  #cpu: CpuTimes | null
  #sampledMs: number
  #last: HostSample | null = null

  constructor(intervalMs: number, nowMs: number) {
    this.#intervalMs = intervalMs
    this.#cpu = readCpu()
    this.#sampledMs = nowMs
  }

  /** The current sample; null without `/proc`. */
  sample(nowMs: number): HostSample | null {
    // Half the interval, as in Triton: a value must be seen to change within 1.2 intervals.
    if (this.#last !== null && nowMs - this.#sampledMs < this.#intervalMs / 2) return this.#last
    const cpu = readCpu()
    const memory = readText('/proc/meminfo')
    const parsed = memory === null ? null : parseMemory(memory)
    if (cpu === null || parsed === null) return null
    const before = this.#cpu ?? cpu
    const elapsed = cpu.total - before.total
    const utilization = elapsed > 0 ? Math.min(1, Math.max(0, (cpu.busy - before.busy) / elapsed)) : 0
    this.#cpu = cpu
    this.#sampledMs = nowMs
    this.#last = { utilization, memoryTotalBytes: parsed.totalBytes, memoryUsedBytes: parsed.usedBytes }
    return this.#last
  }
}

function readCpu(): CpuTimes | null {
  const text = readText('/proc/stat')
  return text === null ? null : parseCpuTimes(text)
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return null
  }
}
