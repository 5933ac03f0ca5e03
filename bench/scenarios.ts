/**
 * The experiments of the papers this project grew from, as scenarios: which of our measurements answers each, what was seen there, and a
 * sentence on what is seen here. "There" are other machines and years (gigabit and 10-gigabit Ethernet): shapes compare, figures do not.
 */
import { sweeps } from './experiments.ts';
import type { CaseResult, Experiment, ExperimentResult, ScenarioResult } from './types.ts';

interface Scenario {
  readonly name: string;
  readonly question: string;
  /** The experiment it needs. */
  readonly needs: string;
  readonly there: string;
  readonly here: (find: (id: string) => CaseResult | undefined) => string;
}

const fixed = (value: number | undefined, digits = 2): string => (value === undefined || !Number.isFinite(value) ? 'not measured' : value.toFixed(digits));
const KB = 1024;

export const SCENARIOS: readonly Scenario[] = [
  {
    name: 'rddp-bandwidth', needs: 'bandwidth', question: 'Bandwidth of user-level RDDP against TCP over size',
    there: 'a user-level iWARP stays below TCP for small messages and comes near it as messages grow; CRC is the largest single cost',
    here: (find) => {
      const at = (size: number, series: string): string => fixed(find(`bandwidth/${size}/${series}`)?.ratios[`bandwidth/${size}/TCP, onread`]?.median);
      return `of TCP's throughput: ${at(4 * KB, 'Write, CRC')} at 4 KiB (posts share writes), ${at(64 * KB, 'Write, CRC')} at 64 KiB, ${at(1 << 20, 'Write, CRC')} at 1 MiB; without CRC ${at(1 << 20, 'Write, no CRC')} at 1 MiB`;
    },
  },
  {
    name: 'rddp-latency', needs: 'latency-size', question: 'Latency of user-level RDDP against TCP over size; jitter to 8 MiB',
    there: 'a few microseconds above TCP at small sizes, the gap growing with size where each octet is checked',
    here: (find) => {
      const send = (size: number): CaseResult | undefined => find(`latency-size/${size}/Send, CRC`);
      const jitter = (size: number): string => fixed((send(size)?.latency?.p99 ?? Number.NaN) / (send(size)?.latency?.typical ?? Number.NaN), 1);
      return `Send ${fixed(send(64)?.value.median)} us at 64 octets, ${fixed(send(64)?.ratios['latency-size/64/TCP, onread']?.median)} of TCP; p99 over median ${jitter(64)} at 64 octets, ${jitter(64 * KB)} at 64 KiB, ${jitter(8 << 20)} at 8 MiB`;
    },
  },
  {
    name: 'crc-markers', needs: 'crc', question: 'CRC and markers on and off',
    there: 'CRC in software takes a large share of bandwidth; markers need a copy or a gather list and cost less',
    here: (find) => {
      const of = (series: string, base: string): string => fixed(find(`crc/${1 << 20}/${series}`)?.ratios[`crc/${1 << 20}/${base}`]?.median);
      return `of the throughput without CRC: ${of('CRC by simd', 'no CRC')} by SIMD, ${of('CRC by wasm', 'no CRC')} by WebAssembly, ${of('CRC by js', 'no CRC')} by JavaScript, ${of('CRC by crc-32', 'no CRC')} by the package crc-32; markers leave ${of('markers, no CRC', 'no CRC')} without and ${of('markers, CRC by simd', 'CRC by simd')} with CRC`;
    },
  },
  {
    name: 'gather', needs: 'gather', question: 'Gather by copy, writev or cork',
    there: 'copying wins for small payloads, writev for large ones',
    here: (find) => {
      const of = (size: number): string => fixed(find(`gather/${size}/cork (writev)`)?.ratios[`gather/${size}/copy into one buffer`]?.median);
      return `cork against copy: ${of(256)} at 256 octets, ${of(4 * KB)} at 4 KiB, ${of(64 * KB)} at 64 KiB, ${of(1 << 20)} at 1 MiB`;
    },
  },
  {
    name: 'posting', needs: 'bandwidth', question: 'Cost of posting against a socket write',
    there: 'posting to a progress engine costs a fraction of a system call',
    here: (find) => {
      const row = (series: string): string => {
        const cost = find(`bandwidth/${4 * KB}/${series}`)?.cost;
        return `${fixed(cost?.postPerMessage)} us in the call, ${fixed(cost?.clientPerMessage)} us of CPU in all`;
      };
      return `4 KiB, for a message: Write ${row('Write, CRC')}; socket write ${row('TCP, onread')}. Engine in the same thread: a worker engine is not there to be measured`;
    },
  },
  {
    name: 'in-flight', needs: 'depth', question: '4 KiB over 1 to 512 in flight',
    there: 'throughput rises with requests under way and levels off when one core is full',
    here: (find) => {
      const at = (n: number): string => fixed(find(`depth/${n}/Write, CRC`)?.value.median);
      return `Writes: ${at(1)} GB/s at 1, ${at(8)} at 8, ${at(64)} at 64, ${at(512)} at 512`;
    },
  },
  {
    name: 'connections', needs: 'connections', question: '4 KiB over 1 to 64 connections, 500 in flight',
    there: 'adapters lose throughput when connections outgrow their cache',
    here: (find) => {
      const at = (n: number): string => fixed(find(`connections/${n}/Write, CRC`)?.ratios['connections/1/Write, CRC']?.median);
      return `against one connection: ${at(4)} at 4, ${at(16)} at 16, ${at(64)} at 64`;
    },
  },
  {
    name: 'fpdu', needs: 'fpdu', question: 'Sends of 16 KiB over FPDU sizes',
    there: 'throughput grows with the FPDU: fixed work for each is spread over more octets',
    here: (find) => {
      const at = (n: number): string => fixed(find(`fpdu/${n}/Send, CRC`)?.value.median);
      return `${at(576)} GB/s at 576, ${at(1448)} at 1448, ${at(8192)} at 8192, ${at(65_483)} at 65483`;
    },
  },
  {
    name: 'hot-spot', needs: 'hotspot', question: 'Hot spot: one server, 1 to 64 clients',
    there: 'the server saturates and then shares, without falling',
    here: (find) => {
      const at = (n: number): string => fixed(find(`hotspot/${n}/Write, CRC`)?.ratios['hotspot/1/Write, CRC']?.median);
      return `in all, against one client: ${at(4)} with 4, ${at(16)} with 16, ${at(64)} with 64 processes on two cores`;
    },
  },
];

/** The experiments that the named scenarios need, each once. */
export function experimentsOf(names: readonly string[]): Experiment[] {
  const needed = new Set(SCENARIOS.filter(({ name }) => names.includes(name)).map(({ needs }) => needs));
  return sweeps().filter(({ id }) => needed.has(id));
}

/** The sentences of every scenario whose experiment was run. */
export function answers(experiments: readonly ExperimentResult[]): ScenarioResult[] {
  const cases = new Map(experiments.flatMap((experiment) => experiment.cases).map((one) => [one.id, one]));
  const ran = new Set(experiments.map(({ id }) => id));
  return SCENARIOS.filter(({ needs }) => ran.has(needs)).map(({ name, question, there, here }) => ({ name, question, there, here: here((id) => cases.get(id)) }));
}
