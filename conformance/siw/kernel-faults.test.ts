/** A kernel's complaint belongs to a known fault, or to none. */
import { describe, expect, it } from 'vitest';
import { kernelFault } from './kernel-faults.ts';

const K1 = `[   61.2] WARNING: CPU: 1 PID: 145 at siw_cm.c:453 siw_cep_put+0x11d/0x130 [siw]
[   61.2]  siw_destroy_listen+0xf9/0x1a0 [siw]
[   61.2]  destroy_cm_id+0xa2/0x230 [iw_cm]`;
const K2 = `[   32.1] kernel BUG at drivers/infiniband/core/iwcm.c:969!
[   32.1] Workqueue: iw_cm_wq cm_work_handler [iw_cm]
[   32.1] RIP: 0010:cm_work_handler+0xa8f/0xe20 [iw_cm]`;
const K3 = `[   40.0] BUG: kernel NULL pointer dereference, address: 0000000000000004
[   40.0] RIP: 0010:memcpy_orig+0x1e/0x140
[   40.0]  kmemdup+0x32/0x40
[   40.0]  cm_event_handler+0x1c6/0x240 [iw_cm]
[   40.0]  siw_cm_upcall+0x10a/0x1b0 [siw]`;
const K4 = `[   40.0] BUG: kernel NULL pointer dereference, address: 0000000000000002
[   40.0] RIP: 0010:siw_cm_work_handler+0xb91/0xeb0 [siw]
[   40.0]  process_one_work+0x1c7/0x380`;

/** As 6.12 says it. */
const K3_LATER = `[   84.1] BUG: kernel NULL pointer dereference, address: 0000000000000004
[   84.1] Oops: Oops: 0000 [#1] PREEMPT SMP
[   84.1] Workqueue: siw_cm_wq siw_cm_work_handler [siw]
[   84.1] RIP: 0010:memcpy_orig+0x1e/0x140
[   84.1]  kmemdup_noprof+0x36/0x50
[   84.1]  cm_event_handler+0x142/0x1b0 [iw_cm]
[   84.1]  siw_cm_upcall+0x10a/0x1b0 [siw]
[   84.1]  siw_cm_work_handler+0x76b/0xea0 [siw]`;
const K4_LATER = `[   84.1] BUG: kernel NULL pointer dereference, address: 0000000000000002
[   84.1] Oops: Oops: 0000 [#1] PREEMPT SMP
[   84.1] Workqueue: siw_cm_wq siw_cm_work_handler [siw]
[   84.1] RIP: 0010:siw_cm_work_handler+0xb83/0xea0 [siw]
[   84.1]  process_one_work+0x190/0x3a0`;

describe('the words of a kernel', () => {
  it.each([
    ['K1', K1],
    ['K2', K2],
    ['K3', K3],
    ['K4', K4],
    ['K3', K3_LATER],
    ['K4', K4_LATER],
  ])('are those of %s', (section, log) => expect(kernelFault(log)).toBe(section));

  it.each([
    ['nothing at all', ''],
    ['another BUG of the same file without its worker', K2.split('\n')[0]!],
    ['a NULL pointer elsewhere', K4.replace('siw_cm_work_handler', 'siw_tx_hdt')],
    ['a warning that is not at the end of a listener', K1.replace('siw_destroy_listen', 'siw_qp_put')],
  ])('are those of no fault: %s', (_what, log) => expect(kernelFault(log)).toBeNull());

  it('are judged by the first complaint', () => {
    expect(kernelFault(`${K4.replace('siw_cm_work_handler', 'other')}\n--- end trace ---\n${K2}`)).toBeNull();
  });
});
