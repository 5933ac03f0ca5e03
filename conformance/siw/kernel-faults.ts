/** Known faults of siw, as sections of the report, by the words with which the kernel falls over them. */
import { kernelWords } from './kernel-words.ts';

const FAULTS: readonly { readonly section: string; readonly words: readonly RegExp[] }[] = [
  { section: 'K1', words: [/siw_cm\.c:\d+ siw_cep_put\b|refcount_t: underflow/, /\bsiw_destroy_listen\b/] },
  { section: 'K2', words: [/^kernel BUG at drivers\/infiniband\/core\/iwcm\.c:/m, /\bcm_work_handler\b/] },
  { section: 'K3', words: [/^BUG: kernel NULL pointer/m, /\bkmemdup/, /\bsiw_cm_upcall\b/] },
  { section: 'K4', words: [/^BUG: kernel NULL pointer/m, /^RIP: \S*:siw_cm_work_handler\b/m] },
];

/** The section of the fault that these messages of a kernel begin with; null if it is none that is known. */
export function kernelFault(log: string): string | null {
  const words = kernelWords(log);
  return FAULTS.find((fault) => fault.words.every((each) => each.test(words)))?.section ?? null;
}
