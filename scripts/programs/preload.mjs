// plain.mjs, as it is, under `--import iwarp/preload`: everything at 127.0.0.2 runs over RDMA streams.
import { spawn } from 'node:child_process';
import { check, done, same } from './kit.mjs';

async function run(rules) {
  const child = spawn(process.execPath, ['--import', 'iwarp/preload', 'plain.mjs'], {
    env: { ...process.env, IWARP_PRELOAD: rules, IWARP_PRELOAD_LOG: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const late = setTimeout(() => child.kill('SIGKILL'), 80_000);
  let [out, log] = ['', ''];
  child.stdout.on('data', (data) => (out += data));
  child.stderr.on('data', (data) => (log += data));
  await new Promise((resolve) => child.once('close', resolve));
  clearTimeout(late);
  const over = [...log.matchAll(/^iwarp\/preload: (\w+ \S+) over (\w+)/gm)];
  return { lines: out.trim().split('\n'), over };
}

for (const protocol of ['rsocket', 'sdp']) {
  const { lines, over } = await run(`127.0.0.2:* ${protocol}`);
  for (const line of lines.slice(0, -1))
    await check(`preload ${protocol}: ${line.replace(/^(ok {5}|FAILED )/, '')}`, async () =>
      same(line.startsWith('ok '), true),
    );
  await check(`preload ${protocol}: ${lines.at(-1)}`, async () => same(lines.at(-1), '8 passed, 0 failed'));
  await check(`preload ${protocol}: all ${over.length} ends of connections run over it`, async () => {
    same(over.length >= 20, true);
    same(over.filter(([, , how]) => how !== protocol).map(([, side]) => side).join(), '');
  });
}
done();
