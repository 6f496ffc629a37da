/** The figures as Markdown: one table per transport, each Nereid row with its ratio to the floor of the same concurrency. */

const FLOORS = { HTTP: { name: 'hyper echo', target: 1.7 }, gRPC: { name: 'h2 echo', target: 1.8 } }

export function markdown(result) {
  const lines = [
    `${result.cpus} × ${result.cpu}, Node ${result.node}, load ${result.loadAverage.map((n) => n.toFixed(1)).join(' ')}; ` +
      `medians of ${result.repetitions} interleaved repetitions of ${result.seconds} s; generator on the same machine.`,
    '',
  ]
  for (const transport of ['HTTP', 'gRPC']) {
    const rows = result.rows.filter((row) => row.transport === transport)
    if (rows.length === 0) continue
    const { name: floorName, target } = FLOORS[transport]
    lines.push(
      `| ${transport}, \`simple\` | c | requests/s | p50 µs | p99 µs | server CPU µs/request | ÷ ${floorName} | target at c ≥ 8 |`,
      '|---|---|---|---|---|---|---|---|',
    )
    for (const row of rows) {
      const floor = rows.find((other) => other.name === floorName && other.c === row.c)
      const isSubject = row.name === 'nereid'
      const ratio = isSubject && floor ? row.cpuUs / floor.cpuUs : null
      const verdict = ratio === null || row.c < 8 ? '' : ratio <= target ? `≤ ${target} met` : `≤ ${target} missed`
      lines.push(
        `| ${row.name} | ${row.c} | ${Math.round(row.rate)} | ${row.p50.toFixed(0)} | ${row.p99.toFixed(0)} | ` +
          `${row.cpuUs.toFixed(1)} (${row.cpuUsMin.toFixed(1)}–${row.cpuUsMax.toFixed(1)}) | ${ratio === null ? '' : ratio.toFixed(2)} | ${verdict} |`,
      )
    }
    lines.push('')
  }
  lines.push(
    `Bare ONNX Runtime loop on the same model, through our backend: ${result.ortLoop.p50Us.toFixed(1)} µs per run (median). ` +
      `Start to ready with the example models: ${result.startMs} ms. Resident memory: ${result.idleMiB} MiB before load, ${result.peakMiB} MiB at most.`,
    '',
  )
  return lines.join('\n')
}
