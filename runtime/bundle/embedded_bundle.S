// The kernels of the library: kernels.attune, which the build makes. .incbin looks in the include path.
  .section .rodata
  .hidden attune_embedded_bundle_begin
  .hidden attune_embedded_bundle_end
  .global attune_embedded_bundle_begin
  .global attune_embedded_bundle_end
  .balign 64
attune_embedded_bundle_begin:
  .incbin "kernels.attune"
attune_embedded_bundle_end:

  .section .note.GNU-stack, "", %progbits
