"""What the residuals show that the model leaves out, and what would close it."""

FINDINGS = (
    (
        "The held-out half",
        "What is dealt to it differs by chance: of its 78 batched rows 34 are of the Intel Max "
        "1550 and of its prefill rows 96 of one chip under two back ends that no calibration "
        "device has. Therefore the five folds, in which every row is once among the unseen ones.",
    ),
    (
        "Several devices under llama.cpp",
        "Its pipeline of micro-batches speeds an 8B model up nearly as the formula says (2.4x on "
        "four cards), but a 70B model hardly at all on some hosts. One share of overlap is used "
        "for all. The host's PCIe topology and llama.cpp's number of copies in flight would be "
        "needed, which the source does not state.",
    ),
    (
        "Kernels of one back end",
        "Flash attention by rocWMMA falls off with the context for grouped queries (2.4x at 4,096 "
        "tokens) and not for multi-head models; Vulkan prefill of dense models above 24B loses a "
        "factor of 2 to 3. Both are kernels of one version on one chip: a number for each would "
        "fit them and predict nothing.",
    ),
    (
        "Intel Max 1550",
        "Only Argonne's rows exist. More devices make them slower, by up to 8x: the back ends of "
        "2024 moved whole layers through the host. No other device tells the model so, and "
        "predictions that never saw it keep the ideal of tensor parallelism.",
    ),
    (
        "Engines seen on one device",
        "MLC, TinyChat, ExLlamaV2, Genie and NeuronX were measured on one device or two. Leaving "
        "that device out leaves their published priors alone: errors of 20 to 60% that shrink to "
        "5 to 20% with the device. More devices a engine would close this.",
    ),
    (
        "Quantised formats by name",
        "Unpacking a weight costs the same for all formats of a width here. On processors Q5_0 "
        "and IQ4_NL are up to twice as slow as Q4_0. A table of operations a format would fit; "
        "two sources are too few to calibrate it.",
    ),
    (
        "Full services",
        "Near saturation TTFT and TPOT follow from how close the load is to the maximum: 5% of "
        "error there are 50% of waiting. Runs limited by latency (MLPerf Server) are predicted at "
        "their limit instead. The closed forms know means only; lengths vary in truth.",
    ),
    (
        "Static batches of TensorRT-LLM at their maximum",
        "QServe's comparison does not state the batch that TensorRT-LLM reached nor how requests "
        "were refilled; the largest batch that fits is assumed, and is too fast by a third.",
    ),
)
