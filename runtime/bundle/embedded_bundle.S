// The kernels of the library: kernels.attune, which the build makes. .incbin looks in the include path. A binary whose
// kernels lie in a file beside it has that file's name, ATTUNE_BUNDLE_FILE, and the tables alone in its image.
#ifndef ATTUNE_BUNDLE_FILE
#define ATTUNE_BUNDLE_FILE ""
#endif
  .section .rodata
  .hidden attune_embedded_bundle_begin
  .hidden attune_embedded_bundle_end
  .hidden attune_embedded_bundle_file
  .global attune_embedded_bundle_begin
  .global attune_embedded_bundle_end
  .global attune_embedded_bundle_file
  .balign 64
attune_embedded_bundle_begin:
  .incbin "kernels.attune"
attune_embedded_bundle_end:
attune_embedded_bundle_file:
  .asciz ATTUNE_BUNDLE_FILE

  .section .note.GNU-stack, "", %progbits
